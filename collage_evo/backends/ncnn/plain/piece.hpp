// One network in ncnn, in float32.
#pragma once
#include <ncnn/net.h>

#include "tensors.hpp"

struct NcnnPiece : Piece {
    ncnn::PoolAllocator blobs, workspace;  // keep what a run has freed; the network's weights lie there: before it
    ncnn::Net net;

    NcnnPiece(const std::string& folder, const PieceData& manifest, Tensors& tensors) : Piece(manifest, tensors) {
        ncnn::Option& option = net.opt;
        option.num_threads = std::stoi(manifest.settings.at("num_threads"));
        option.lightmode = true;
        option.blob_allocator = &blobs, option.workspace_allocator = &workspace;
        option.use_vulkan_compute = false;
        option.use_packing_layout = option.use_sgemm_convolution = true;
        option.use_winograd_convolution = manifest.settings.at("use_winograd_convolution") == "1";
        option.use_fp16_packed = option.use_fp16_storage = option.use_fp16_arithmetic = false;
        option.use_bf16_packed = option.use_bf16_storage = false;
        option.use_int8_packed = option.use_int8_storage = option.use_int8_arithmetic = option.use_int8_inference = false;
        const std::string path = folder + "/";
        if (net.load_param((path + manifest.files[0]).c_str()) || net.load_model((path + manifest.files[1]).c_str()))
            throw std::runtime_error("ncnn cannot load " + path + manifest.files[0]);
    }

    // The tensor's own memory, which has no gaps between channels, without its batch axis where ncnn has none.
    static ncnn::Mat view(const Tensor& tensor, bool batched) {
        std::vector<int> s(tensor.shape.begin() + (batched ? 1 : 0), tensor.shape.end());
        const size_t n = s.size();
        ncnn::Mat mat = n == 1   ? ncnn::Mat(s[0], (void*)tensor.data)
                        : n == 2 ? ncnn::Mat(s[1], s[0], (void*)tensor.data)
                        : n == 3 ? ncnn::Mat(s[2], s[1], s[0], (void*)tensor.data)
                                 : ncnn::Mat(s[3], s[2], s[1], s[0], (void*)tensor.data);
        mat.cstep = size_t(mat.w) * mat.h * mat.d;
        return mat;
    }

    void run() override {
        ncnn::Extractor extractor = net.create_extractor();
        const auto is = [&](const char* name, size_t k) { return data.settings.at(name)[k] == '1'; };
        for (size_t k = 0; k < inputs.size(); ++k) {
            const ncnn::Mat mat = view(*inputs[k], is("inputs_without_batch_axis", k));
            extractor.input(("in" + std::to_string(k)).c_str(), is("inputs_read_in_place", k) ? mat : mat.clone());
        }
        for (size_t k = 0; k < outputs.size(); ++k) {
            ncnn::Mat made, target = view(*outputs[k], is("outputs_without_batch_axis", k));
            const int status = extractor.extract(("out" + std::to_string(k)).c_str(), made);
            if (status || made.w != target.w || made.h != target.h || made.d != target.d || made.c != target.c)
                throw std::runtime_error("ncnn gave " + outputs[k]->name + " in another shape");
            const size_t bytes = target.cstep * sizeof(float);
            for (int c = 0; c < target.c; ++c) std::memcpy(target.channel(c), made.channel(c), bytes);
        }
    }
};
