// One shared library of TVM's.
#pragma once
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "tensors.hpp"

struct TvmPiece : Piece {
    tvm::ffi::Module machine{tvm::ffi::UnsafeInit{}};
    tvm::ffi::Function main;

    TvmPiece(const std::string& folder, const PieceData& manifest, Tensors& tensors) : Piece(manifest, tensors) {
        using namespace tvm::ffi;
        if (const int threads = std::stoi(manifest.settings.at("threads")); threads > 1) {
            setenv("TVM_NUM_THREADS", manifest.settings.at("threads").c_str(), 1), setenv("TVM_BIND_THREADS", "0", 1);
            Array<String> cores;
            for (int core = 0; core < threads; ++core) cores.push_back(std::to_string(core));
            Function::GetGlobalRequired("runtime.config_threadpool")(-3, threads, cores);  // the system places them
        }
        const Module library = loaded(folder + "/" + manifest.files[0]);
        machine = library->GetFunction("vm_load_executable").value()().cast<Module>();
        machine->GetFunction("vm_initialization").value()(int(kDLCPU), 0, 2);  // pooled memory
        main = machine->GetFunction("main").value();
    }

    // The system gives whoever loads a path again what it loaded first: a copy has a name that nothing else gets.
    static tvm::ffi::Module loaded(const std::string& path) {
        std::string folder = (std::filesystem::temp_directory_path() / "collage_evo-XXXXXX").string();
        if (!mkdtemp(folder.data())) throw std::runtime_error("no temporary directory for " + path);
        struct Removed { std::string folder; ~Removed() { std::error_code e; std::filesystem::remove_all(folder, e); } } removed{folder};
        const std::string copy = folder + "/model.so";
        std::filesystem::copy_file(path, copy);
        return tvm::ffi::Module::LoadFromFile(copy);
    }

    static tvm::ffi::Tensor view(Tensor& tensor) {
        static const std::map<int, uint8_t> codes{{1, kDLFloat}, {6, kDLInt}, {7, kDLInt}, {9, kDLBool}};
        auto* managed = new DLManagedTensor{};
        managed->dl_tensor.data = tensor.data, managed->dl_tensor.device = {kDLCPU, 0};
        managed->dl_tensor.ndim = int(tensor.shape.size()), managed->dl_tensor.shape = tensor.shape.data();
        managed->dl_tensor.dtype = {codes.at(tensor.type), uint8_t(8 * tensor.size), 1};
        managed->deleter = [](DLManagedTensor* self) { delete self; };
        return tvm::ffi::Tensor::FromDLPack(managed, 64);
    }

    void run() override {
        using namespace tvm::ffi;
        std::vector<Any> arguments;
        for (auto* tensor : inputs) arguments.push_back(view(*tensor));
        std::vector<AnyView> views(arguments.begin(), arguments.end());
        Any made;
        main.CallPacked(views.data(), int(views.size()), &made);
        for (size_t i = 0; i < outputs.size(); ++i) {
            const auto found = outputs.size() > 1 ? made.cast<Array<tvm::ffi::Tensor>>()[i] : made.cast<tvm::ffi::Tensor>();
            std::memcpy(outputs[i]->data, found.data_ptr(), outputs[i]->bytes());
        }
    }
};
