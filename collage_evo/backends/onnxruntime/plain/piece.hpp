// One ONNX file in ONNX Runtime.
#pragma once
#include <onnxruntime_cxx_api.h>

#include "tensors.hpp"

struct OnnxRuntimePiece : Piece {
    Ort::Session session{nullptr};

    OnnxRuntimePiece(const std::string& folder, const PieceData& manifest, Tensors& tensors) : Piece(manifest, tensors) {
        static Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "pipeline");
        static const std::map<std::string, GraphOptimizationLevel> levels{
            {"ORT_DISABLE_ALL", ORT_DISABLE_ALL},
            {"ORT_ENABLE_EXTENDED", ORT_ENABLE_EXTENDED},
            {"ORT_ENABLE_ALL", ORT_ENABLE_ALL}};
        Ort::SessionOptions options;
        options.SetIntraOpNumThreads(std::stoi(manifest.settings.at("intra_op_num_threads")));
        options.SetInterOpNumThreads(std::stoi(manifest.settings.at("inter_op_num_threads")));
        options.SetExecutionMode(ORT_SEQUENTIAL);
        options.SetGraphOptimizationLevel(levels.at(manifest.settings.at("graph_optimization_level")));
        if (manifest.settings.count("enable_mem_pattern")) options.DisableMemPattern();
        for (const auto& [name, value] : manifest.settings)
            if (name.find('.') != std::string::npos) options.AddConfigEntry(name.c_str(), value.c_str());
        session = Ort::Session(env, (folder + "/" + manifest.files[0]).c_str(), options);
    }

    static Ort::Value value(const Tensor& tensor) {
        static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
        return Ort::Value::CreateTensor(memory, tensor.data, tensor.bytes(), tensor.shape.data(), tensor.shape.size(),
                                        static_cast<ONNXTensorElementDataType>(tensor.type));
    }

    void run() override {
        std::vector<const char*> taken, made;
        std::vector<Ort::Value> given, found;
        for (const Tensor* tensor : inputs) taken.push_back(tensor->name.c_str()), given.push_back(value(*tensor));
        for (const Tensor* tensor : outputs) {
            made.push_back(tensor->name.c_str());
            found.push_back(tensor->open ? Ort::Value{nullptr} : value(*tensor));
        }
        session.Run(Ort::RunOptions{nullptr}, taken.data(), given.data(), given.size(), made.data(), found.data(),
                    found.size());
        for (size_t i = 0; i < outputs.size(); ++i)
            if (outputs[i]->open) {
                outputs[i]->resize(found[i].GetTensorTypeAndShapeInfo().GetShape());
                std::memcpy(outputs[i]->data, found[i].GetTensorData<char>(), outputs[i]->bytes());
            }
    }
};
