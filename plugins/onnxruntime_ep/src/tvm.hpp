// Pieces of TVM: compiled shared libraries, run by TVM's virtual machine through the C interface of tvm_ffi.
#pragma once
#include <filesystem>
#include <fstream>

#include "pieces.hpp"

// The functions of libtvm_ffi that a piece needs, with the types of its headers spelled out.
class Tvm : Library {
   public:
    enum Type : int32_t { NONE = 0, INT = 1, BOOL = 2, TEXT = 8, TENSOR = 70, ARRAY = 71 };

    struct Any {
        int32_t type = NONE;
        uint32_t padding = 0;
        union {
            int64_t whole = 0;
            void* object;
            const char* text;
        };
        static Any of(int64_t value) { return with(INT, value); }
        static Any flag(bool value) { return with(BOOL, value); }
        static Any of(const char* value) {
            Any made = with(TEXT, 0);
            made.text = value;
            return made;
        }
        static Any with(int32_t type, int64_t value) {
            Any made;
            made.type = type, made.whole = value;
            return made;
        }
    };

    // A value of which this side holds one reference, if it is an object.
    class Owned {
       public:
        Owned() = default;
        Owned(const Tvm& tvm, Any any) : any(any), tvm_(&tvm) {}
        Owned(Owned&& other) noexcept : any(other.any), tvm_(other.tvm_) { other.tvm_ = nullptr; }
        Owned& operator=(Owned&& other) noexcept {
            std::swap(any, other.any), std::swap(tvm_, other.tvm_);
            return *this;
        }
        ~Owned() {
            if (tvm_ && any.type >= 64) tvm_->release_(any.object);
        }
        Any any;

       private:
        const Tvm* tvm_ = nullptr;
    };

    struct Tensor {  // DLTensor
        void* data;
        int32_t device_type, device_id;
        int32_t rank;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t* shape;
        int64_t* strides;
        uint64_t offset;
    };

    Owned call(const Any& function, std::vector<Any> arguments) const {
        Any made;
        require(call_(function.object, arguments.data(), int32_t(arguments.size()), &made));
        return {*this, made};
    }
    Owned global(const std::string& name) const {
        const Bytes bytes{name.data(), name.size()};
        Any made = Any::with(68, 0);
        require(global_(&bytes, &made.object));
        return {*this, made};
    }
    Owned function(const Any& module, const char* name) const {
        Owned found = call(get_function_.any, {module, Any::of(name), Any::flag(true)});
        if (found.any.type == NONE) throw std::runtime_error(std::string("TVM: a piece has no function ") + name);
        return found;
    }
    Owned load(const std::string& path) const { return call(load_.any, {Any::of(path.c_str())}); }
    Owned item(const Any& array, int64_t index) const { return call(item_.any, {array, Any::of(index)}); }

    // A view of memory that stays the caller's.
    Owned view(const Tensor& tensor) const {
        struct Managed {
            Tensor tensor;
            void* context;
            void (*free)(Managed*);
        };
        auto* managed = new Managed{tensor, nullptr, [](Managed* self) { delete self; }};
        Any made = Any::with(TENSOR, 0);
        const int status = wrap_(managed, 64, 0, &made.object);
        if (status != 0) delete managed;
        require(status);
        return {*this, made};
    }
    static const Tensor& tensor_in(const Any& any) {
        if (any.type != TENSOR) throw std::runtime_error("TVM: a piece made something that is no tensor");
        return *reinterpret_cast<const Tensor*>(static_cast<const char*>(any.object) + HEADER);
    }

   private:
    static constexpr char REMEDY[] = "pip install apache-tvm, or set COLLAGE_EVO_TVM to the folder of its libraries";
    static constexpr size_t HEADER = 24;  // bytes of an object before its content
    struct Bytes {
        const char* data;
        size_t size;
    };

    friend class Library;
    explicit Tvm(const std::string& place)
        : Library("TVM", "libtvm_ffi.so", "tvm_ffi/lib", place, RTLD_GLOBAL, REMEDY),  // pieces have its symbols
          runtime_("TVM", "libtvm_runtime.so", "tvm/lib", place, RTLD_GLOBAL, REMEDY) {
        find(call_, "TVMFFIFunctionCall");
        find(global_, "TVMFFIFunctionGetGlobal");
        find(release_, "TVMFFIObjectDecRef");
        find(raised_, "TVMFFIErrorMoveFromRaised");
        find(wrap_, "TVMFFITensorFromDLPack");
        load_ = global("ffi.ModuleLoadFromFile");
        get_function_ = global("ffi.ModuleGetFunction");
        item_ = global("ffi.ArrayGetItem");
    }

    void require(int status) const {
        if (status == 0) return;
        Any error = Any::with(67, 0);
        raised_(&error.object);
        const Owned owned(*this, error);
        const Bytes* const texts = reinterpret_cast<const Bytes*>(static_cast<const char*>(error.object) + HEADER);
        throw std::runtime_error("TVM: " +
                                 (error.object ? std::string(texts[1].data, texts[1].size) : "unknown error"));
    }

    Library runtime_;
    int (*call_)(void*, Any*, int32_t, Any*);
    int (*global_)(const Bytes*, void**);
    int (*release_)(void*);
    void (*raised_)(void**);
    int (*wrap_)(void*, int32_t, int32_t, void**);
    Owned load_, get_function_, item_;
};

class TvmPiece : public Piece {
   public:
    TvmPiece(const PieceData& data, const std::string& place) : tvm_(Library::get<Tvm>(place)) {
        if (const int threads = data.threads("threads"); threads > 1) {
            std::vector<std::string> cores;
            for (int core = 0; core < threads; ++core) cores.push_back(std::to_string(core));
            std::vector<Tvm::Any> texts;
            for (const std::string& core : cores) texts.push_back(Tvm::Any::of(core.c_str()));
            const Tvm::Owned all = tvm_.call(tvm_.global("ffi.Array").any, texts);
            const int64_t system_places_them = -3;
            tvm_.call(tvm_.global("runtime.config_threadpool").any,
                      {Tvm::Any::of(system_places_them), Tvm::Any::of(int64_t(threads)), all.any});
        }
        library_ = loaded(data.paths.at(0));
    }

    std::unique_ptr<Call> bind(Values inputs, Values outputs) override {
        return std::make_unique<Bound>(*this, std::move(inputs), std::move(outputs));
    }

   private:
    // The system gives whoever loads a path again what it loaded first: a copy has a name that nothing else gets.
    Tvm::Owned loaded(const std::string& path) const {
        struct Folder {
            std::string name = (std::filesystem::temp_directory_path() / "collage_evo-XXXXXX").string();
            Folder() {
                if (!mkdtemp(name.data())) throw std::runtime_error("no temporary directory in " + name);
            }
            ~Folder() {
                std::error_code ignored;
                std::filesystem::remove_all(name, ignored);
            }
        } folder;
        const std::string copy = folder.name + "/model.so";
        std::filesystem::copy_file(path, copy);
        return tvm_.load(copy);
    }

    struct Bound : Call {  // a virtual machine of its own, which runs for one thread at a time
        Bound(TvmPiece& piece, Values inputs, Values outputs)
            : tvm(piece.tvm_), inputs(std::move(inputs)), outputs(std::move(outputs)), copies(this->inputs.size()) {
            machine = tvm.call(tvm.function(piece.library_.any, "vm_load_executable").any, {});
            const int64_t cpu = 1, first = 0, pooled = 2;
            tvm.call(tvm.function(machine.any, "vm_initialization").any,
                     {Tvm::Any::of(cpu), Tvm::Any::of(first), Tvm::Any::of(pooled)});
            main = tvm.function(machine.any, "main");
            for (const Value* value : this->outputs)
                if (value->type.open()) throw std::runtime_error("TVM: a piece makes a tensor of an open shape");
        }

        void run() override {
            std::vector<Tvm::Owned> views;
            std::vector<Tvm::Any> arguments;
            for (size_t k = 0; k < inputs.size(); ++k) {
                views.push_back(tvm.view(tensor(*inputs[k], copies[k])));
                arguments.push_back(views.back().any);
            }
            const Tvm::Owned made = tvm.call(main.any, std::move(arguments));
            for (size_t k = 0; k < outputs.size(); ++k) {
                const Tvm::Owned item = made.any.type == Tvm::ARRAY ? tvm.item(made.any, int64_t(k)) : Tvm::Owned();
                const Tvm::Tensor& found = Tvm::tensor_in(made.any.type == Tvm::ARRAY ? item.any : made.any);
                const Value& value = *outputs[k];
                value.require_made({found.shape, found.shape + found.rank});
                if (found.code != code_of(value.type) || found.bits != 8 * value.type.size || found.lanes != 1)
                    throw std::runtime_error("a piece made '" + value.type.name + "' of another type");
                std::memcpy(value.data, static_cast<char*>(found.data) + found.offset,
                            bytes_of(value.type, value.shape));
            }
        }

        // Compiled code assumes that memory begins at a multiple of 64 bytes, as a caller's may not.
        static Tvm::Tensor tensor(Value& value, std::vector<char>& copy) {
            void* data = value.data;
            if (!aligned(data)) {
                const size_t bytes = bytes_of(value.type, value.shape);
                copy.resize(bytes + 64);
                data = copy.data() + (64 - reinterpret_cast<uintptr_t>(copy.data()) % 64);
                std::memcpy(data, value.data, bytes);
            }
            return {data,
                    1,
                    0,
                    int32_t(value.shape.size()),
                    code_of(value.type),
                    uint8_t(8 * value.type.size),
                    1,
                    value.shape.data(),
                    nullptr,
                    0};
        }

        static uint8_t code_of(const TensorType& type) {
            static const std::map<ONNXTensorElementDataType, uint8_t> codes{{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 2},
                                                                            {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 0},
                                                                            {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 0},
                                                                            {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 6}};
            const auto code = codes.find(type.type);
            if (code == codes.end()) throw std::runtime_error("TVM: '" + type.name + "' is " + type.dtype);
            return code->second;
        }

        const Tvm& tvm;
        Values inputs, outputs;
        std::vector<std::vector<char>> copies;
        Tvm::Owned machine, main;
    };

    const Tvm& tvm_;
    Tvm::Owned library_;
};
