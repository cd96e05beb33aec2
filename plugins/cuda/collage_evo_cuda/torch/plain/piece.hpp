// One archive of PyTorch's that Inductor compiled.
#pragma once
#include <ATen/Parallel.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include "tensors.hpp"

struct TorchPiece : Piece {
    std::unique_ptr<torch::inductor::AOTIModelPackageLoader> program;

    TorchPiece(const std::string& folder, const PieceData& manifest, Tensors& tensors) : Piece(manifest, tensors) {
        if (manifest.settings.at("compiled") != "1")
            throw std::runtime_error("what torch.export wrote loads in Python alone: " + manifest.files[0]);
        at::set_num_threads(std::stoi(manifest.settings.at("threads")));
        program = std::make_unique<torch::inductor::AOTIModelPackageLoader>(folder + "/" + manifest.files[0]);
    }

    static at::Tensor view(const Tensor& tensor) {
        static const std::map<int, at::ScalarType> types{
            {1, at::kFloat}, {6, at::kInt}, {7, at::kLong}, {9, at::kBool}, {10, at::kHalf}, {11, at::kDouble}};
        return at::from_blob(tensor.data, tensor.shape, types.at(tensor.type));
    }

    void run() override {
        const c10::InferenceMode no_gradients;
        std::vector<at::Tensor> given;
        for (const Tensor* tensor : inputs) given.push_back(view(*tensor));
        const std::vector<at::Tensor> made = program->run(given);
        for (size_t i = 0; i < outputs.size(); ++i) view(*outputs[i]).copy_(made[i]);
    }
};
