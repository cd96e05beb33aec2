// Tensors between the pieces of an answer, and pieces of ONNX Runtime and OpenVINO.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "api.hpp"
#include "library.hpp"

struct TensorType {
    std::string name, dtype;
    ONNXTensorElementDataType type;
    size_t size;                 // bytes of an element
    std::vector<int64_t> shape;  // -1 is an open size
    int64_t offset;              // in the arena; -1 without a place there

    bool open() const { return std::count(shape.begin(), shape.end(), -1) > 0; }
    bool placed() const { return offset >= 0 && !open(); }
    // Whether shapes agree: -1 in either agrees with any size.
    bool takes(const std::vector<int64_t>& other) const {
        return std::equal(shape.begin(), shape.end(), other.begin(), other.end(),
                          [](int64_t a, int64_t b) { return a == b || a == -1 || b == -1; });
    }
};

inline size_t bytes_of(const TensorType& type, const std::vector<int64_t>& shape) {
    size_t count = type.size;
    for (const int64_t length : shape) count *= size_t(length);
    return count;
}

inline std::string format_tensor(const std::string& dtype, const std::vector<int64_t>& shape) {
    std::string text = dtype + "[";
    for (size_t k = 0; k < shape.size(); ++k)
        text += (k ? ", " : "") + (shape[k] < 0 ? "?" : std::to_string(shape[k]));
    return text + "]";
}

// Whether memory begins where kernels expect it: a caller's may not.
inline bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 64 == 0; }

inline char NOTHING[64];  // the address of tensors without elements, for which libraries have none

// A tensor in one run: memory of the caller, of the arena, or of the library that made it.
class Value {
   public:
    // home: its place in the arena; none where a library or the caller has the memory.
    Value(const TensorType& type, void* home) : type(type), shape(type.shape), data(home), home_(home) {}

    const TensorType& type;
    std::vector<int64_t> shape;
    void* data;  // none before a run where a library allocates it

    void place(void* at, std::vector<int64_t> now) {
        data = at ? at : NOTHING, shape = std::move(now), ort_ = nullptr, made_.reset();
    }
    void borrow(OrtValue* value, const std::vector<int64_t>& now) { place(data_of(value), now), ort_ = value; }
    void adopt(OrtValue* value) {
        OwnedValue owned(value);
        ONNXTensorElementDataType found;
        std::vector<int64_t> now;
        tensor_of(value, found, now);
        if (found != type.type) throw std::runtime_error("a piece made '" + type.name + "' of another type");
        require_made(now);
        place(data_of(value), std::move(now));
        made_ = std::move(owned), ort_ = value;
    }
    void require_made(const std::vector<int64_t>& now) const {
        if (!type.takes(now)) throw std::runtime_error("a piece made '" + type.name + "' in another shape");
    }
    // Drops what the last run borrowed or allocated: a waiting server would hold the last answer in memory.
    void forget() { data = home_, ort_ = nullptr, made_.reset(); }

    OrtValue* as_ort() {
        if (!ort_) {
            static const OrtMemoryInfo* const memory =
                [] {  // never released: ONNX Runtime may be gone at the process's end
                    OrtMemoryInfo* info = nullptr;
                    check(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &info));
                    return info;
                }();
            check(ort->CreateTensorWithDataAsOrtValue(memory, data, bytes_of(type, shape), shape.data(), shape.size(),
                                                      type.type, &ort_));
            made_.reset(ort_);
        }
        return ort_;
    }

   private:
    void* const home_;
    OrtValue* ort_ = nullptr;
    OwnedValue made_;
};

using Values = std::vector<Value*>;
using Settings = std::map<std::string, std::string>;

struct PieceData {
    std::string library, version;
    std::vector<std::string> paths;
    std::vector<std::string> inputs, outputs;
    Settings settings;

    const std::string& setting(const std::string& name) const {
        const auto found = settings.find(name);
        if (found == settings.end()) throw std::runtime_error("a piece of " + library + " lacks the setting " + name);
        return found->second;
    }
    int threads(const std::string& name) const {
        const std::string& text = setting(name);
        int count = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
        if (error != std::errc() || end != text.data() + text.size() || count < 1 ||
            count > sysconf(_SC_NPROCESSORS_ONLN))
            throw std::runtime_error("a piece of " + library + " has '" + text + "' for " + name +
                                     ": run the search on this machine");
        return count;
    }
};

struct Call {  // a piece bound to values, for one thread at a time
    virtual ~Call() = default;
    virtual void run() = 0;
};

struct Piece {  // loaded once, for all threads
    virtual ~Piece() = default;
    virtual std::unique_ptr<Call> bind(Values inputs, Values outputs) = 0;
    virtual std::string version() const { return {}; }  // of the library here, if it says
};

class OnnxRuntimePiece : public Piece {
   public:
    OnnxRuntimePiece(const PieceData& data, const std::string&) : data_(data) {
        OrtEnv* env = nullptr;
        check(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "CollageEvo",
                             &env));  // counts one more user of the process's own
        env_.reset(env);
        OrtSessionOptions* made = nullptr;
        check(ort->CreateSessionOptions(&made));
        const OwnedSessionOptions options(made);
        static const std::map<std::string, GraphOptimizationLevel> levels{
            {"ORT_DISABLE_ALL", ORT_DISABLE_ALL},
            {"ORT_ENABLE_EXTENDED", ORT_ENABLE_EXTENDED},
            {"ORT_ENABLE_ALL", ORT_ENABLE_ALL}};
        check(ort->SetIntraOpNumThreads(made, data.threads("intra_op_num_threads")));
        check(ort->SetInterOpNumThreads(made, data.threads("inter_op_num_threads")));
        check(ort->SetSessionExecutionMode(made, ORT_SEQUENTIAL));
        const auto level = levels.find(data.setting("graph_optimization_level"));
        if (level == levels.end()) throw std::runtime_error("a piece of onnxruntime has no such optimisation level");
        check(ort->SetSessionGraphOptimizationLevel(made, level->second));
        check(ort->SetSessionLogSeverityLevel(made, ORT_LOGGING_LEVEL_ERROR));
        if (data.settings.count("enable_mem_pattern")) check(ort->DisableMemPattern(made));
        for (const auto& [name, value] : data.settings)
            if (name.find('.') != std::string::npos)
                check(ort->AddSessionConfigEntry(made, name.c_str(), value.c_str()));
        OrtSession* session = nullptr;
        check(ort->CreateSession(env, data.paths.at(0).c_str(), made, &session));
        session_.reset(session);
    }

    std::string version() const override { return ort_version; }

    std::unique_ptr<Call> bind(Values inputs, Values outputs) override {
        return std::make_unique<Bound>(*this, std::move(inputs), std::move(outputs));
    }

   private:
    struct Bound : Call {
        Bound(OnnxRuntimePiece& piece, Values inputs, Values outputs)
            : session(piece.session_.get()),
              inputs(std::move(inputs)),
              outputs(std::move(outputs)),
              fed(this->inputs.size()),
              made(this->outputs.size()) {
            for (const auto& name : piece.data_.inputs) taken_names.push_back(name.c_str());
            for (const auto& name : piece.data_.outputs) made_names.push_back(name.c_str());
            require(this->inputs, ort->SessionGetInputCount, ort->SessionGetInputName, ort->SessionGetInputTypeInfo);
            require(this->outputs, ort->SessionGetOutputCount, ort->SessionGetOutputName,
                    ort->SessionGetOutputTypeInfo);
        }
        // Requires that the session declares these tensors as they are: it does not check the memory of outputs.
        template <class Count, class Name, class Info>
        void require(const Values& values, Count count_of, Name name_of, Info info_of) const {
            OrtAllocator* allocator = nullptr;
            check(ort->GetAllocatorWithDefaultOptions(&allocator));
            std::map<std::string, const Value*> wanted;
            for (const Value* value : values) wanted[value->type.name] = value;
            size_t count = 0;
            check(count_of(session, &count));
            for (size_t k = 0; k < count; ++k) {
                char* name = nullptr;
                check(name_of(session, k, allocator, &name));
                const auto found = wanted.find(name);
                check(ort->AllocatorFree(allocator, name));
                if (found == wanted.end()) continue;
                const TensorType& type = found->second->type;
                OrtTypeInfo* info = nullptr;
                check(info_of(session, k, &info));
                const OwnedTypeInfo owned(info);
                ONNXTensorElementDataType declared;
                std::vector<int64_t> shape;
                tensor_of(info, declared, shape);
                if (declared != type.type || (!shape.empty() && !type.takes(shape)))
                    throw std::runtime_error("a piece of onnxruntime has '" + type.name + "' otherwise than as " +
                                             format_tensor(type.dtype, type.shape) + ": export the answer again");
                wanted.erase(found);
            }
            if (!wanted.empty())
                throw std::runtime_error("a piece of onnxruntime has no tensor '" + wanted.begin()->first + "'");
        }
        void run() override {
            for (size_t k = 0; k < fed.size(); ++k) fed[k] = inputs[k]->as_ort();
            for (size_t k = 0; k < made.size(); ++k) made[k] = outputs[k]->data ? outputs[k]->as_ort() : nullptr;
            check(ort->Run(session, nullptr, taken_names.data(), fed.data(), fed.size(), made_names.data(),
                           made.size(), made.data()));
            for (size_t k = 0; k < made.size(); ++k)
                if (!outputs[k]->data) outputs[k]->adopt(made[k]);
        }
        OrtSession* session;
        Values inputs, outputs;
        std::vector<const char*> taken_names, made_names;
        std::vector<const OrtValue*> fed;
        std::vector<OrtValue*> made;
    };

    const PieceData& data_;
    OwnedEnv env_;
    OwnedSession session_;
};

// The functions of libopenvino_c that a piece needs, with the types of its headers spelled out.
class OpenVino : public Library {
   public:
    struct Shape {
        int64_t rank;
        int64_t* sizes;
    };

    void* core = nullptr;
    int (*core_create)(void**);
    int (*compile)(void*, const char*, const char*, size_t, void**, ...);
    int (*request_of)(void*, void**);
    int (*input_port)(void*, const char*, void**);
    int (*output_port)(void*, const char*, void**);
    int (*type_of)(void*, int*);
    int (*wrap)(int, Shape, void*, void**);
    int (*set_input)(void*, size_t, void*);
    int (*set_output)(void*, size_t, void*);
    int (*infer)(void*);
    int (*get_output)(void*, size_t, void**);
    int (*shape_of)(void*, Shape*);
    int (*free_shape)(Shape*);
    int (*data_of)(void*, void**);
    int (*bytes_in)(void*, size_t*);
    void (*free_tensor)(void*);
    void (*free_port)(void*);
    void (*free_request)(void*);
    void (*free_model)(void*);
    const char* (*last_error)();

    void require(int status) const {
        if (status == 0) return;
        const char* text = last_error();
        throw std::runtime_error("OpenVINO: " +
                                 std::string(text && *text ? text : "error " + std::to_string(status)));
    }

   private:
    friend class Library;
    explicit OpenVino(const std::string& place)
        : Library("OpenVINO", "libopenvino_c.so", "openvino/libs", place, RTLD_LOCAL,
                  "pip install openvino, or set COLLAGE_EVO_OPENVINO to its folder of libraries") {
        find(core_create, "ov_core_create");
        find(compile, "ov_core_compile_model_from_file");
        find(request_of, "ov_compiled_model_create_infer_request");
        find(input_port, "ov_compiled_model_input_by_name");
        find(output_port, "ov_compiled_model_output_by_name");
        find(type_of, "ov_port_get_element_type");
        find(wrap, "ov_tensor_create_from_host_ptr");
        find(set_input, "ov_infer_request_set_input_tensor_by_index");
        find(set_output, "ov_infer_request_set_output_tensor_by_index");
        find(infer, "ov_infer_request_infer");
        find(get_output, "ov_infer_request_get_output_tensor_by_index");
        find(shape_of, "ov_tensor_get_shape");
        find(free_shape, "ov_shape_free");
        find(data_of, "ov_tensor_data");
        find(bytes_in, "ov_tensor_get_byte_size");
        find(free_tensor, "ov_tensor_free");
        find(free_port, "ov_output_const_port_free");
        find(free_request, "ov_infer_request_free");
        find(free_model, "ov_compiled_model_free");
        find(last_error, "ov_get_last_err_msg");
        require(core_create(&core));
    }
};

class OpenVinoPiece : public Piece {
   public:
    OpenVinoPiece(const PieceData& data, const std::string& place) : ov_(Library::get<OpenVino>(place)) {
        // Variadic, and the number of settings is known only here: those beyond the given number are not read.
        std::array<const char*, 32> s{};
        size_t count = 0;
        for (const auto& [name, value] : data.settings) {
            if (count == s.size()) throw std::runtime_error("a piece of openvino has more than 16 settings");
            s[count++] = name.c_str(), s[count++] = value.c_str();
        }
        ov_.require(ov_.compile(ov_.core, data.paths.at(0).c_str(), "CPU", count, &model_, s[0], s[1], s[2], s[3],
                                s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13], s[14], s[15], s[16],
                                s[17], s[18], s[19], s[20], s[21], s[22], s[23], s[24], s[25], s[26], s[27], s[28],
                                s[29], s[30], s[31]));
        for (const auto& name : data.inputs) input_types_.push_back(type(ov_.input_port, name));
        for (const auto& name : data.outputs) output_types_.push_back(type(ov_.output_port, name));
    }
    ~OpenVinoPiece() override {
        if (model_) ov_.free_model(model_);
    }

    std::unique_ptr<Call> bind(Values inputs, Values outputs) override {
        return std::make_unique<Bound>(*this, std::move(inputs), std::move(outputs));
    }

   private:
    int type(int (*port_of)(void*, const char*, void**), const std::string& name) const {
        void* port = nullptr;
        if (port_of(model_, name.c_str(), &port) != 0)
            throw std::runtime_error("a piece of openvino has no tensor '" + name + "': export the answer again");
        int found = 0;
        const int status = ov_.type_of(port, &found);
        ov_.free_port(port);
        ov_.require(status);
        return found;
    }

    struct Bound : Call {
        struct Port {
            void* data = nullptr;  // what it is bound to: most requests bring the memory of the last one
            std::vector<int64_t> shape;
        };

        Bound(OpenVinoPiece& piece, Values inputs, Values outputs)
            : piece(piece),
              ov(piece.ov_),
              inputs(std::move(inputs)),
              outputs(std::move(outputs)),
              in(this->inputs.size()),
              out(this->outputs.size()) {
            ov.require(ov.request_of(piece.model_, &request));
        }
        ~Bound() override { ov.free_request(request); }

        void run() override {
            for (size_t k = 0; k < in.size(); ++k) set(ov.set_input, k, piece.input_types_[k], *inputs[k], in[k]);
            for (size_t k = 0; k < out.size(); ++k)
                if (outputs[k]->data) set(ov.set_output, k, piece.output_types_[k], *outputs[k], out[k]);
            ov.require(ov.infer(request));
            for (size_t k = 0; k < out.size(); ++k)
                if (!outputs[k]->data) take(k);
        }

        void set(int (*setter)(void*, size_t, void*), size_t index, int type, Value& value, Port& port) {
            if (port.data == value.data && port.shape == value.shape) return;
            void* tensor = nullptr;
            const OpenVino::Shape shape{int64_t(value.shape.size()), value.shape.data()};
            ov.require(ov.wrap(type, shape, value.data, &tensor));
            const bool fits = bytes_in(tensor) == bytes_of(value.type, value.shape);
            const int status = fits ? setter(request, index, tensor) : 0;
            ov.free_tensor(tensor);
            ov.require(status);
            if (!fits) throw_other_type(value);
            port.data = value.data, port.shape = value.shape;
        }
        void take(size_t index) {
            void *tensor = nullptr, *data = NOTHING;
            ov.require(ov.get_output(request, index, &tensor));
            OpenVino::Shape shape{};
            int status = ov.shape_of(tensor, &shape);
            std::vector<int64_t> sizes(shape.sizes, shape.sizes + shape.rank);
            ov.free_shape(&shape);
            const size_t bytes = bytes_of(outputs[index]->type, sizes);
            const bool fits = bytes_in(tensor) == bytes;
            if (status == 0 && bytes) status = ov.data_of(tensor, &data);
            ov.free_tensor(tensor);  // the request holds its memory until the next run
            ov.require(status);
            if (!fits) throw_other_type(*outputs[index]);
            outputs[index]->require_made(sizes);
            outputs[index]->place(data, std::move(sizes));
        }
        size_t bytes_in(void* tensor) const {
            size_t bytes = 0;
            ov.bytes_in(tensor, &bytes);
            return bytes;
        }
        [[noreturn]] static void throw_other_type(const Value& value) {
            throw std::runtime_error("a piece of openvino has '" + value.type.name + "' otherwise than as " +
                                     value.type.dtype + ": export the answer again");
        }

        OpenVinoPiece& piece;
        const OpenVino& ov;
        Values inputs, outputs;
        std::vector<Port> in, out;
        void* request = nullptr;
    };

    const OpenVino& ov_;
    void* model_ = nullptr;
    std::vector<int> input_types_, output_types_;
};
