// One IR file in OpenVINO.
#pragma once
#include <openvino/openvino.hpp>

#include "tensors.hpp"

struct OpenVinoPiece : Piece {
    ov::CompiledModel model;
    ov::InferRequest request;

    OpenVinoPiece(const std::string& folder, const PieceData& manifest, Tensors& tensors) : Piece(manifest, tensors) {
        static ov::Core core;
        // Without the properties it would compute in bfloat16 where the processor can, and on all cores.
        const ov::AnyMap properties(manifest.settings.begin(), manifest.settings.end());
        model = core.compile_model(folder + "/" + manifest.files[0], "CPU", properties);
        request = model.create_infer_request();
        for (size_t i = 0; i < inputs.size(); ++i)
            if (!inputs[i]->open) request.set_input_tensor(i, view(*inputs[i]));
        for (size_t i = 0; i < outputs.size(); ++i)
            if (!outputs[i]->open) request.set_output_tensor(i, view(*outputs[i]));
    }

    static ov::Tensor view(const Tensor& tensor) {
        using namespace ov::element;
        static const std::map<int, ov::element::Type> types{
            {1, f32}, {2, u8}, {3, i8}, {6, i32}, {7, i64}, {9, boolean}, {10, f16}, {11, f64}};
        return {types.at(tensor.type), ov::Shape(tensor.shape.begin(), tensor.shape.end()), tensor.data};
    }

    void run() override {
        for (size_t i = 0; i < inputs.size(); ++i)
            if (inputs[i]->open) request.set_input_tensor(i, view(*inputs[i]));
        request.infer();
        for (size_t i = 0; i < outputs.size(); ++i)
            if (outputs[i]->open) {
                const ov::Tensor made = request.get_output_tensor(i);
                outputs[i]->resize({made.get_shape().begin(), made.get_shape().end()});
                std::memcpy(outputs[i]->data, made.data(), outputs[i]->bytes());
            }
    }
};
