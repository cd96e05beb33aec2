// The tensors between pieces, and what a piece is.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Tensor {
    std::string name;
    int type;                    // ONNX's number of its element type
    size_t size;                 // bytes of an element
    std::vector<int64_t> shape;  // as it is; of an open one as it was last
    long offset;                 // in the memory that all share; -1 for an open one, which has its own
    char* data = nullptr;
    bool open = false;
    std::vector<char> own{};

    size_t bytes() const {
        size_t count = size;
        for (const int64_t length : shape) count *= size_t(length);
        return count;
    }
    void resize(const std::vector<int64_t>& now) {
        shape = now;
        own.resize(bytes());
        data = own.data();
    }
};

using Tensors = std::map<std::string, Tensor>;

struct PieceData {
    std::vector<std::string> files, inputs, outputs;
    std::map<std::string, std::string> settings;
};

struct Piece {
    const PieceData& data;
    std::vector<Tensor*> inputs, outputs;

    Piece(const PieceData& manifest, Tensors& tensors) : data(manifest) {
        for (const auto& name : manifest.inputs) inputs.push_back(&tensors.at(name));
        for (const auto& name : manifest.outputs) outputs.push_back(&tensors.at(name));
    }
    virtual ~Piece() = default;
    virtual void run() = 0;
};
