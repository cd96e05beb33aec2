// Runs the files in this folder one after the other, on memory that is taken once.
#pragma once
#include "answer.hpp"

class Pipeline {
   public:
    // folder: where the files are. Not for several threads at a time: make one for each.
    explicit Pipeline(const std::string& folder) : arena_(static_cast<char*>(std::aligned_alloc(64, ARENA)), std::free) {
        for (Tensor tensor : TENSORS) {
            tensor.open = tensor.offset < 0;
            if (!tensor.open) tensor.data = arena_.get() + tensor.offset;
            tensors_.emplace(tensor.name, tensor);
        }
        for (const Step& step : STEPS) pieces_.push_back(step.make(folder, step.data, tensors_));
    }
    Pipeline(const Pipeline&) = delete;

    // An input or output: write to its data before a run (after resize, if its shape is open), read after.
    Tensor& operator[](const std::string& name) { return tensors_.at(name); }

    void run() {
        for (const auto& piece : pieces_) piece->run();
    }

   private:
    std::unique_ptr<char, decltype(&std::free)> arena_;
    Tensors tensors_;
    std::vector<std::unique_ptr<Piece>> pieces_;
};
