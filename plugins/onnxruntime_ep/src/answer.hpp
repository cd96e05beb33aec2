// An answer: programs of pieces, one for each set of input shapes, as the folder beside the model describes them.
#pragma once
#include <sys/utsname.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "files.hpp"
#include "json.hpp"
#include "ncnn.hpp"
#include "pieces.hpp"
#include "tvm.hpp"

inline constexpr size_t LARGEST_MANIFEST = size_t(1) << 25;
inline constexpr size_t MOST = size_t(1) << 13;  // regions, and tensors, of all programs together, as in Python
inline constexpr int64_t ALIGNMENT = 64;         // bytes, of tensors in the memory of their program
// The variables that libraries' threads obey, each a number: a manifest sets no others.
inline const std::set<std::string> VARIABLES_OF_THREADS{"GOMP_SPINCOUNT", "OMP_NUM_THREADS",
                                                        "TVM_THREAD_POOL_SPIN_COUNT"};

inline const std::map<std::string, std::pair<ONNXTensorElementDataType, size_t>>& element_types() {
    static const std::map<std::string, std::pair<ONNXTensorElementDataType, size_t>> known{
        {"float32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4}},
        {"uint8", {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1}},
        {"int8", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1}},
        {"uint16", {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, 2}},
        {"int16", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, 2}},
        {"int32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4}},
        {"int64", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8}},
        {"bool", {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1}},
        {"float16", {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2}},
        {"float64", {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8}},
        {"uint32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, 4}},
        {"uint64", {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, 8}},
        {"complex64", {ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX64, 8}},
        {"complex128", {ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX128, 16}}};
    return known;
}

inline std::string format_declared(ONNXTensorElementDataType type, const std::vector<int64_t>& shape) {
    std::string dtype = "of another type";
    for (const auto& [name, known] : element_types())
        if (known.first == type) dtype = name;
    return format_tensor(dtype, shape);
}

// The first number that is no index from low to high - 1, as text; empty if there is none. Fractions are truncated.
template <class Number>
std::string first_outside(const void* data, size_t count, int64_t low, int64_t high) {
    const Number* numbers = static_cast<const Number*>(data);
    for (size_t k = 0; k < count; ++k) {
        const Number number = numbers[k];
        bool inside;
        if constexpr (std::is_floating_point_v<Number>)  // NaN compares as false
            inside = double(low) <= std::trunc(double(number)) && std::trunc(double(number)) < double(high);
        else if constexpr (std::is_unsigned_v<Number>)
            inside = high > 0 && uint64_t(number) < uint64_t(high) && (low <= 0 || uint64_t(number) >= uint64_t(low));
        else
            inside = low <= int64_t(number) && int64_t(number) < high;
        if (inside) continue;
        std::ostringstream text;
        text << +number;
        return text.str();
    }
    return {};
}

inline std::string first_outside(const TensorType& type, const void* data, size_t count, int64_t low, int64_t high) {
    switch (type.type) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return first_outside<float>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: return first_outside<double>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: return first_outside<int8_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: return first_outside<int16_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return first_outside<int32_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return first_outside<int64_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return first_outside<uint8_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16: return first_outside<uint16_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32: return first_outside<uint32_t>(data, count, low, high);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64: return first_outside<uint64_t>(data, count, low, high);
        default:
            throw std::runtime_error("input '" + type.name + "' has limits, which are not checked for " + type.dtype);
    }
}

struct Machine {
    std::string architecture, cpu;
    std::set<std::string> features;

    static Machine here() {
        Machine found;
        utsname system{};
        if (uname(&system) == 0) found.architecture = system.machine;
        std::ifstream file("/proc/cpuinfo");
        for (std::string line; std::getline(file, line) && !line.empty();) {  // of the first processor
            const size_t colon = std::min(line.find(':'), line.size());
            const std::string key = line.substr(0, line.find_last_not_of(" \t", colon ? colon - 1 : 0) + 1);
            std::istringstream rest(line.substr(std::min(colon + 2, line.size())));
            if (key == "flags" || key == "Features")
                for (std::string one; rest >> one;) found.features.insert(one);
            if (key == "model name") std::getline(rest, found.cpu);
        }
        return found;
    }
};

// For each library the place that a session's option or the environment names, if any.
using Places = std::map<std::string, std::string>;

template <class Kind>
std::unique_ptr<Piece> loaded(const PieceData& data, const std::string& place) {
    return std::make_unique<Kind>(data, place);
}

// How a piece of each library is loaded.
inline const std::map<std::string, decltype(&loaded<TvmPiece>)>& loaders() {
    static const std::map<std::string, decltype(&loaded<TvmPiece>)> known{
        {"ncnn", loaded<NcnnPiece>},
        {"onnxruntime", loaded<OnnxRuntimePiece>},
        {"openvino", loaded<OpenVinoPiece>},
        {"tvm", loaded<TvmPiece>}};
    return known;
}

// One program: its tensors, and its pieces in execution order.
class Program {
   public:
    Program(const Json& manifest, const CheckedFiles& files, const std::string& folder, const Places& places) {
        for (const auto& [name, one] : manifest["tensors"].entries()) tensors_.emplace(name, tensor(name, one));
        inputs = manifest["inputs"].strings(), outputs = manifest["outputs"].strings();
        std::set<std::string> defined(inputs.begin(), inputs.end());
        const std::set<std::string> results(outputs.begin(), outputs.end());
        if (defined.size() != inputs.size() || results.size() != outputs.size())
            throw std::runtime_error("an input or output is named twice");
        for (const auto& name : inputs) require_tensor(name);
        for (const auto& [name, range] : manifest["limits"].entries()) {
            const auto bounds = range.integers();
            if (bounds.size() != 2) throw std::runtime_error("the limits of '" + name + "' are no range");
            if (!std::count(inputs.begin(), inputs.end(), name))
                throw std::runtime_error("'" + name + "' has limits and is no input");
            limits[name] = {bounds[0], bounds[1]};
            first_outside(type(name), nullptr, 0, bounds[0], bounds[1]);
        }
        if (std::any_of(inputs.begin(), inputs.end(), [&](const auto& name) { return type(name).open(); }))
            for (const Json& arg : manifest["declared"]["inputs"].list()) read_names(arg);
        const int64_t size = manifest["arena_bytes"].integer();
        const auto memory = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
        if (size < 0 || size > memory)
            throw std::runtime_error("its tensors take " + std::to_string(size) +
                                     " bytes, more than this machine has");
        arena_ = size_t(size);
        for (const auto& [name, type] : tensors_) {
            if (!type.placed()) continue;
            if (size_t(type.offset) + bytes_of(type, type.shape) > arena_)
                throw std::runtime_error("tensor '" + name + "' lies outside the memory of its program");
            if (type.offset % ALIGNMENT != 0)
                throw std::runtime_error("tensor '" + name + "' begins at byte " + std::to_string(type.offset) +
                                         ", which is no multiple of " + std::to_string(ALIGNMENT));
        }
        for (const Json& one : manifest["pieces"].list()) {
            const std::string region = "region " + std::to_string(data_.size());
            data_.push_back(std::make_unique<PieceData>(piece(one, files, folder)));
            for (const auto& name : data_.back()->inputs)
                if (!defined.count(name))
                    throw std::runtime_error(region + " reads '" + name + "', which nothing before it makes");
            if (data_.back()->outputs.empty()) throw std::runtime_error(region + " makes nothing");
            for (const auto& name : data_.back()->outputs) {
                require_tensor(name);
                if (!defined.insert(name).second)
                    throw std::runtime_error(region + " makes '" + name + "', which is there already");
            }
        }
        for (const auto& name : outputs) {
            if (!defined.count(name)) throw std::runtime_error("nothing makes the output '" + name + "'");
            if (std::count(inputs.begin(), inputs.end(), name))
                throw std::runtime_error("'" + name + "' is an input and an output");
        }
        require_apart();
        for (const auto& [name, value] : manifest["environment"].entries()) {
            const std::string& text = value.string();
            if (!VARIABLES_OF_THREADS.count(name) || text.find_first_not_of("0123456789") != std::string::npos)
                throw std::runtime_error("the manifest sets the variable '" + name + "' to '" + text +
                                         "': do not use it");
            environment_[name] = text;
        }
        places_ = places;
    }

    std::vector<std::string> inputs, outputs;
    std::map<std::string, std::pair<int64_t, int64_t>> limits;
    // Where inputs are open: for each name of a size the inputs that have it, each with the axis.
    std::map<std::string, std::vector<std::pair<size_t, size_t>>> named;

    const TensorType& type(const std::string& name) const { return tensors_.at(name); }
    size_t regions() const { return data_.size(); }
    size_t tensors() const { return tensors_.size(); }
    // For each library that says it: the version of the answer, and that of this process.
    std::map<std::string, std::pair<std::string, std::string>> versions() const {
        std::map<std::string, std::pair<std::string, std::string>> found;
        for (size_t k = 0; k < pieces_.size(); ++k)
            if (const std::string here = pieces_[k]->version(); !here.empty())
                found[data_[k]->library] = {data_[k]->version, here};
        return found;
    }

    // Loads the pieces, unless they are loaded already, from files that nobody changes meanwhile.
    void load(CheckedFiles& files) {
        if (loaded_.load(std::memory_order_acquire)) return;
        const std::lock_guard<std::mutex> lock(mutex_);
        if (loaded_) return;
        for (const auto& [name, value] : environment_)
            setenv(name.c_str(), value.c_str(), 0);  // read by libraries at their start
        pieces_ = files.unchanged(names_, [this] {
            std::vector<std::unique_ptr<Piece>> loaded;
            for (const auto& one : data_) loaded.push_back(loaders().at(one->library)(*one, places_[one->library]));
            return loaded;
        });
        idle_.push_back(std::make_unique<Context>(*this));  // a piece of other tensors is refused now
        loaded_.store(true, std::memory_order_release);
    }

    // Memory and bound calls for one run at a time; ``take`` makes one more for each thread that runs meanwhile.
    class Context {
       public:
        explicit Context(Program& program)
            : arena_(static_cast<char*>(std::aligned_alloc(64, (program.arena_ + 127) / 64 * 64)), std::free) {
            if (!arena_) throw std::bad_alloc();
            for (const auto& [name, type] : program.tensors_) {
                char* const home = type.placed() ? arena_.get() + type.offset : nullptr;
                Value& value = values_.try_emplace(name, type, home).first->second;
                if (!home) passing_.push_back(&value);
            }
            inputs = all(program.inputs), outputs = all(program.outputs);
            passing_.insert(passing_.end(), inputs.begin(), inputs.end());
            passing_.insert(passing_.end(), outputs.begin(), outputs.end());
            for (size_t k = 0; k < program.pieces_.size(); ++k)
                calls_.push_back(
                    program.pieces_[k]->bind(all(program.data_[k]->inputs), all(program.data_[k]->outputs)));
        }
        Context(const Context&) = delete;

        Values inputs, outputs;
        std::map<std::string, std::vector<char>> copies;  // of inputs with limits, which the caller may still change

        void run() {
            for (const auto& call : calls_) call->run();
        }
        void forget() {
            for (Value* value : passing_) value->forget();
        }

       private:
        Values all(const std::vector<std::string>& names) {
            Values found;
            for (const auto& name : names) found.push_back(&values_.at(name));
            return found;
        }

        std::unique_ptr<char, decltype(&std::free)> arena_;
        std::map<std::string, Value> values_;
        Values passing_;  // those whose memory changes from run to run
        std::vector<std::unique_ptr<Call>> calls_;
    };

    std::unique_ptr<Context> take() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!idle_.empty()) {
                std::unique_ptr<Context> context = std::move(idle_.back());
                idle_.pop_back();
                return context;
            }
        }
        return std::make_unique<Context>(*this);
    }
    void give_back(std::unique_ptr<Context> context) {
        const std::lock_guard<std::mutex> lock(mutex_);
        idle_.push_back(std::move(context));
    }

   private:
    static TensorType tensor(const std::string& name, const Json& one) {
        const auto known = element_types().find(one["dtype"].string());
        if (known == element_types().end())
            throw std::runtime_error("tensor '" + name + "' is " + one["dtype"].string());
        const auto shape = one["shape"].integers();
        double bytes = double(known->second.second);
        for (const int64_t length : shape) {
            bytes *= double(std::max<int64_t>(length, 1));
            if (length < -1 || bytes > 1e15)
                throw std::runtime_error("tensor '" + name + "' is " + format_tensor(known->first, shape));
        }
        const Json& offset = one["offset"];
        return {name,
                known->first,
                known->second.first,
                known->second.second,
                shape,
                offset.kind == Json::NONE ? -1 : offset.integer()};
    }

    PieceData piece(const Json& one, const CheckedFiles& files, const std::string& folder) {
        PieceData made;
        made.library = one["library"].string(), made.version = one["version"].string();
        if (!loaders().count(made.library)) {
            std::string known;
            for (const auto& [name, load] : loaders()) known += (known.empty() ? "" : ", ") + name;
            throw OrtFailure(ORT_NOT_IMPLEMENTED, "this build does not run pieces of " + made.library +
                                                      ": search with -s 'backends.use=[" + known +
                                                      "]', or serve the artifact from Python");
        }
        for (const auto& file : one["files"].strings()) {
            const std::string name = folder == "." ? file : folder + "/" + file;
            CheckedFiles::require_inside(name);
            files.digest_of(name);
            if (std::count(names_.begin(), names_.end(), name))
                throw std::runtime_error("two regions have one file, " + name);
            names_.push_back(name), made.paths.push_back(files.path(name));
        }
        if (made.paths.empty()) throw std::runtime_error("a piece of " + made.library + " has no file");
        made.inputs = one["inputs"].strings(), made.outputs = one["outputs"].strings();
        for (const auto& [name, value] : one["settings"].entries()) made.settings[name] = value.string();
        return made;
    }

    void read_names(const Json& declared) {
        const std::string& name = declared["name"].string();
        const std::vector<Json>& sizes = declared["shape"].list();
        const auto input = std::find(inputs.begin(), inputs.end(), name);
        if (input == inputs.end() || sizes.size() > type(name).shape.size())
            throw std::runtime_error("it declares an input '" + name + "' that the program does not have");
        for (size_t axis = 0; axis < sizes.size(); ++axis)
            if (sizes[axis].kind == Json::TEXT)
                named[sizes[axis].text].emplace_back(size_t(input - inputs.begin()), axis);
    }

    void require_tensor(const std::string& name) const {
        const auto found = tensors_.find(name);
        if (found == tensors_.end()) throw std::runtime_error("there is no tensor '" + name + "'");
        if (found->second.offset < 0 && !found->second.open())
            throw std::runtime_error("tensor '" + name + "' has no place in the memory of its program");
    }

    // Requires that no tensor shares memory with another that is needed at the same time.
    void require_apart() const {
        std::map<std::string, std::pair<size_t, size_t>> lives;  // the first and last piece that uses each
        const auto use = [&](const std::vector<std::string>& names, size_t step) {
            for (const auto& name : names) {
                auto& [first, last] = lives.try_emplace(name, step, step).first->second;
                first = std::min(first, step), last = std::max(last, step);
            }
        };
        use(inputs, 0), use(inputs, data_.size() + 1), use(outputs, data_.size() + 1);
        for (size_t k = 0; k < data_.size(); ++k) use(data_[k]->inputs, k + 1), use(data_[k]->outputs, k + 1);
        std::vector<const TensorType*> placed;
        for (const auto& [name, life] : lives)
            if (const TensorType& type = tensors_.at(name); type.placed() && bytes_of(type, type.shape) > 0)
                placed.push_back(&type);
        std::sort(placed.begin(), placed.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
        for (size_t k = 0; k < placed.size(); ++k) {
            const auto [first, last] = lives.at(placed[k]->name);
            const size_t end = size_t(placed[k]->offset) + bytes_of(*placed[k], placed[k]->shape);
            for (size_t other = k + 1; other < placed.size() && size_t(placed[other]->offset) < end; ++other)
                if (const auto life = lives.at(placed[other]->name); first <= life.second && life.first <= last)
                    throw std::runtime_error("tensors '" + placed[k]->name + "' and '" + placed[other]->name +
                                             "' share memory");
        }
    }

    std::map<std::string, TensorType> tensors_;
    size_t arena_ = 0;
    std::map<std::string, std::string> environment_;
    Places places_;
    std::vector<std::string> names_;  // of the files
    std::vector<std::unique_ptr<PieceData>> data_;
    std::mutex mutex_;
    std::atomic<bool> loaded_{false};
    std::vector<std::unique_ptr<Piece>> pieces_;  // after data_ and before idle_, which stand on each other
    std::vector<std::unique_ptr<Context>> idle_;
};

// All programs of an answer, and the place of each input and output in the kernel that runs it.
class Answer {
   public:
    // folder: beside the model; digest: of its answer.json, by the model's node, or empty.
    Answer(const std::string& folder, const std::string& digest, const Places& places) : files_(folder) {
        try {
            read(digest, places);
        } catch (const OrtFailure&) {
            throw;
        } catch (const std::exception& failure) {
            const std::string text = failure.what();
            throw std::runtime_error(text.find(files_.folder()) == std::string::npos
                                         ? files_.folder() + " does not load: " + text
                                         : text);
        }
    }

    const std::vector<std::string>& inputs() const { return programs_[0]->inputs; }
    const std::vector<std::string>& outputs() const { return programs_[0]->outputs; }
    const std::vector<std::string>& warnings() const { return warnings_; }

    // Requires that the model's node declares a tensor as the answer has it: what the model's session allocates by
    // the one is read and written by the other.
    void require_declared(const std::string& name, const OrtTypeInfo* declared) const {
        ONNXTensorElementDataType type;
        std::vector<int64_t> shape;
        tensor_of(declared, type, shape);
        for (const auto& program : programs_) {
            const TensorType& here = program->type(name);
            if (here.type == type && (shape.empty() || here.takes(shape))) continue;  // empty where it says no shape
            throw std::runtime_error("the EPContext node declares " + format_declared(type, shape) + " for '" + name +
                                     "', which is " + format_tensor(here.dtype, here.shape) +
                                     " in its answer: export the answer again");
        }
    }

    // Indices of the inputs and outputs in the kernel; -1 for an output that its graph does not use.
    void place(std::vector<int> taken, std::vector<int> made) {
        taken_ = std::move(taken), made_ = std::move(made);
        if (std::count(taken_.begin(), taken_.end(), -1)) throw std::runtime_error("the EPContext node lacks an input");
    }

    void run(OrtKernelContext* kernel) {
        std::vector<FedInput> fed(taken_.size());
        for (size_t k = 0; k < fed.size(); ++k) {
            const OrtValue* value = nullptr;
            check(ort->KernelContext_GetInput(kernel, size_t(taken_[k]), &value));
            if (!value) throw OrtFailure(ORT_INVALID_ARGUMENT, "input '" + inputs()[k] + "' is missing");
            fed[k].value =
                const_cast<OrtValue*>(value);  // the interface of Run takes no constant memory; it only reads
            tensor_of(value, fed[k].type, fed[k].shape);
        }
        Program& program = choose(fed);
        std::unique_ptr<Program::Context> context = program.take();
        feed(program, *context, fed);
        const auto output = [&](size_t k) -> OrtValue* {
            const std::vector<int64_t>& shape = context->outputs[k]->shape;
            OrtValue* made = nullptr;
            if (made_[k] >= 0)
                check(ort->KernelContext_GetOutput(kernel, size_t(made_[k]), shape.data(), shape.size(), &made));
            return made;
        };
        for (size_t k = 0; k < made_.size(); ++k)
            if (!context->outputs[k]->type.open())
                if (OrtValue* made = output(k)) context->outputs[k]->borrow(made, context->outputs[k]->type.shape);
        context->run();
        for (size_t k = 0; k < made_.size(); ++k)
            if (const Value& value = *context->outputs[k]; value.type.open())
                if (OrtValue* made = output(k))
                    std::memcpy(data_of(made), value.data, bytes_of(value.type, value.shape));
        context->forget();
        program.give_back(std::move(context));  // after an error it is dropped
    }

   private:
    struct FedInput {
        OrtValue* value;
        ONNXTensorElementDataType type;
        std::vector<int64_t> shape;
    };

    static bool fits(const TensorType& type, const FedInput& fed) {
        return type.type == fed.type && type.takes(fed.shape);
    }

    // The first program that takes these types and shapes: exact ones stand before that of open shapes.
    Program& choose(const std::vector<FedInput>& fed) {
        for (const auto& program : programs_) {
            bool all = true;
            for (size_t k = 0; k < fed.size(); ++k) all = all && fits(program->type(inputs()[k]), fed[k]);
            if (!all) continue;
            require_agreement(*program, fed);
            program->load(files_);
            return *program;
        }
        std::string text;
        for (size_t k = 0; k < fed.size() && text.empty(); ++k) {
            const TensorType& type = programs_.back()->type(inputs()[k]);
            if (fits(type, fed[k]) && k + 1 < fed.size()) continue;
            text = "input '" + inputs()[k] + "' is " + format_declared(fed[k].type, fed[k].shape) +
                   "; this model takes ";
            for (size_t one = 0; one < programs_.size(); ++one)
                text += (one ? " or " : "") + format_tensor(type.dtype, programs_[one]->type(inputs()[k]).shape);
        }
        throw OrtFailure(ORT_INVALID_ARGUMENT, text);
    }

    // Sizes of one name are equal: an operator may take one that is 1 for any other.
    static void require_agreement(const Program& program, const std::vector<FedInput>& fed) {
        for (const auto& [name, axes] : program.named)
            for (const auto& [k, axis] : axes) {
                const int64_t first = fed[axes[0].first].shape[axes[0].second], size = fed[k].shape[axis];
                if (size == first) continue;
                throw OrtFailure(ORT_INVALID_ARGUMENT, "'" + name + "' is " + std::to_string(first) + " in input '" +
                                                           program.inputs[axes[0].first] + "' and " +
                                                           std::to_string(size) + " in '" + program.inputs[k] + "'");
            }
    }

    static void feed(const Program& program, Program::Context& context, const std::vector<FedInput>& fed) {
        for (size_t k = 0; k < fed.size(); ++k) {
            Value& value = *context.inputs[k];
            const auto limit = program.limits.find(value.type.name);
            if (limit == program.limits.end()) {
                value.borrow(fed[k].value, fed[k].shape);
                continue;
            }
            const auto [low, high] = limit->second;
            const size_t bytes = bytes_of(value.type, fed[k].shape);
            std::vector<char>& copy = context.copies[value.type.name];
            copy.resize(bytes);
            std::memcpy(copy.data(), data_of(fed[k].value), bytes);
            value.place(copy.data(), fed[k].shape);
            const std::string wrong = first_outside(value.type, copy.data(), bytes / value.type.size, low, high);
            if (wrong.empty()) continue;
            if (low == INT32_MIN && high == int64_t(INT32_MAX) + 1)
                throw OrtFailure(
                    ORT_INVALID_ARGUMENT,
                    "input '" + value.type.name + "': " + wrong +
                        " takes more than the 32 bits that a library here computes with: give smaller numbers");
            throw OrtFailure(ORT_INVALID_ARGUMENT, "input '" + value.type.name +
                                                       "': indices element out of data bounds, idx=" + wrong +
                                                       " must be within the inclusive range [" + std::to_string(low) +
                                                       "," + std::to_string(high - 1) + "]");
        }
    }

    void read(const std::string& digest, const Places& places) {
        const Json answer = JsonReader::read(files_.read("answer.json", digest, LARGEST_MANIFEST));
        require_schema(answer);
        std::map<std::string, std::string> digests;
        for (const auto& [name, one] : answer["files"].entries()) digests[name] = one.string();
        files_.expect(std::move(digests));
        std::set<std::string> folders;
        size_t regions = 0, tensors = 0;
        for (const std::string& folder : answer["folders"].strings()) {
            if (!folders.insert(folder).second) throw std::runtime_error("two programs have one folder, " + folder);
            const std::string name = folder == "." ? "pipeline.json" : folder + "/pipeline.json";
            const Json manifest = JsonReader::read(files_.read(name, files_.digest_of(name), LARGEST_MANIFEST));
            require_schema(manifest);
            require_machine(manifest);
            programs_.push_back(std::make_unique<Program>(manifest, files_, folder, places));
            if (programs_.back()->inputs != inputs() || programs_.back()->outputs != outputs())
                throw std::runtime_error("its programs are not of one model");
            regions += programs_.back()->regions(), tensors += programs_.back()->tensors();
            if (std::max(regions, tensors) > MOST)
                throw std::runtime_error("more than " + std::to_string(MOST) + " regions or tensors are not read");
        }
        if (programs_.empty()) throw std::runtime_error("it has no program");
        files_.check_all();
        // The last of several takes any shapes and is loaded by the first request that needs it, as in Python.
        for (size_t k = 0; k < programs_.size(); ++k)
            if (k == 0 || k + 1 < programs_.size()) programs_[k]->load(files_);
        files_.forget();
        for (const auto& [library, versions] : programs_[0]->versions())
            if (versions.first != versions.second)
                warnings_.push_back("the answer was measured with " +
                                    (library == "onnxruntime" ? "ONNX Runtime" : library) + " " + versions.first +
                                    ", here is " + versions.second + ": it may round otherwise");
    }

    static void require_schema(const Json& manifest) {
        if (manifest["schema"].integer() != 1)
            throw std::runtime_error("it has schema " + std::to_string(manifest["schema"].integer()) +
                                     ", this version reads 1: export the answer again");
    }

    void require_machine(const Json& manifest) {
        static const Machine here = Machine::here();
        const Json& machine = manifest["machine"];
        if (machine["architecture"].string() != here.architecture)
            throw std::runtime_error("it was made for " + machine["architecture"].string() + ", this machine is " +
                                     here.architecture + ": run the search on this machine");
        std::string missing;
        for (const auto& feature : machine["features"].strings())
            if (!here.features.count(feature)) missing += (missing.empty() ? "" : ", ") + feature;
        if (!missing.empty())
            throw std::runtime_error("it was made on a CPU with " + missing +
                                     ", which this one lacks: run the search on this machine");
        const int64_t threads = manifest["threads"].integer(), cores = sysconf(_SC_NPROCESSORS_ONLN);
        if (threads > cores)
            throw std::runtime_error("it was made for " + std::to_string(threads) + " threads, this machine has " +
                                     std::to_string(cores) + " cores: run the search on this machine");
        if (machine["cpu"].string() != here.cpu && warnings_.empty())
            warnings_.push_back("the answer was made on " + machine["cpu"].string() + "; on this processor, " +
                                here.cpu + ", it may round otherwise and be faster or slower than measured");
    }

    CheckedFiles files_;
    std::vector<std::unique_ptr<Program>> programs_;
    std::vector<int> taken_, made_;
    std::vector<std::string> warnings_;
};
