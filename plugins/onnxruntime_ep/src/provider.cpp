// The execution provider CollageEvo: runs EPContext nodes of exported answers, by ONNX Runtime's plug-in interface.
#include "answer.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr char NAME[] = "CollageEvo", VENDOR[] = "collage_evo", VERSION[] = "0.1.0";
constexpr std::pair<const char*, const char*> VARIABLES[] = {{"ncnn", "COLLAGE_EVO_NCNN"},
                                                             {"openvino", "COLLAGE_EVO_OPENVINO"},
                                                             {"tvm", "COLLAGE_EVO_TVM"}};
const OrtEpApi* ep_api = nullptr;

std::string attribute(const OrtNode* node, const char* name) {
    const OrtOpAttr* found = nullptr;
    if (OrtStatus* status = ort->Node_GetAttributeByName(node, name, &found)) {
        ort->ReleaseStatus(status);
        return {};
    }
    if (!found) return {};
    size_t size = 0;
    if (OrtStatus* status = ort->ReadOpAttr(found, ORT_OP_ATTR_STRING, nullptr, 0, &size))
        ort->ReleaseStatus(status);  // too small
    std::string text(size, '\0');
    if (size > 0) check(ort->ReadOpAttr(found, ORT_OP_ATTR_STRING, text.data(), size, &size));
    text.resize(std::min(size, text.size()));
    return text.c_str();  // without a terminator that some versions count
}

std::vector<const OrtNode*> nodes_of(const OrtGraph* graph) {
    size_t count = 0;
    check(ort->Graph_GetNumNodes(graph, &count));
    std::vector<const OrtNode*> nodes(count);
    if (count > 0) check(ort->Graph_GetNodes(graph, nodes.data(), count));
    return nodes;
}

bool is_ours(const OrtNode* node) {
    const char *type = nullptr, *domain = nullptr;
    check(ort->Node_GetOperatorType(node, &type));
    check(ort->Node_GetDomain(node, &domain));
    return std::string(type) == "EPContext" && std::string(domain) == "com.microsoft" &&
           attribute(node, "source") == NAME;
}

using Count = decltype(OrtApi::Node_GetNumInputs);
using Values_ = decltype(OrtApi::Node_GetInputs);

std::vector<const OrtValueInfo*> values(const OrtNode* node, Count count_of, Values_ values_of) {
    size_t count = 0;
    check(count_of(node, &count));
    std::vector<const OrtValueInfo*> values(count);
    if (count > 0) check(values_of(node, values.data(), count));
    return values;
}
std::vector<const OrtValueInfo*> inputs_of(const OrtNode* node) {
    return values(node, ort->Node_GetNumInputs, ort->Node_GetInputs);
}
std::vector<const OrtValueInfo*> outputs_of(const OrtNode* node) {
    return values(node, ort->Node_GetNumOutputs, ort->Node_GetOutputs);
}
std::string name_of(const OrtValueInfo* value) {
    const char* name = "";
    if (value) check(ort->GetValueInfoName(value, &name));
    return name;
}

// For each of the answer's tensors, the kernel's index of the tensor that the model's node has in its place. It may
// have another name, if the model has operators around the node, but not that of another of the answer's tensors.
std::vector<int> indices(const Answer& answer, const std::vector<std::string>& answers,
                         const std::vector<const OrtValueInfo*>& nodes,
                         const std::vector<const OrtValueInfo*>& kernels) {
    if (answers.size() != nodes.size())
        throw std::runtime_error(
            "the EPContext node has other inputs or outputs than its answer: export the answer again");
    std::vector<int> found;
    for (size_t k = 0; k < nodes.size(); ++k) {
        const std::string name = name_of(nodes[k]);
        if (name != answers[k] && std::count(answers.begin(), answers.end(), name))
            throw std::runtime_error("the EPContext node has '" + name + "' in the place of '" + answers[k] +
                                     "': export the answer again");
        const auto at = std::find_if(kernels.begin(), kernels.end(),
                                     [&](const OrtValueInfo* value) { return name_of(value) == name; });
        found.push_back(at == kernels.end() || name.empty() ? -1 : int(at - kernels.begin()));
        if (name.empty()) continue;
        const OrtTypeInfo* declared = nullptr;
        check(ort->GetValueInfoTypeInfo(nodes[k], &declared));
        answer.require_declared(answers[k], declared);
    }
    return found;
}

struct Kernel : OrtNodeComputeInfo {
    Answer answer;

    Kernel(const std::string& folder, const std::string& digest, const Places& places)
        : OrtNodeComputeInfo{}, answer(folder, digest, places) {
        ort_version_supported = API;
        CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
            *state = self;
            return nullptr;
        };
        Compute = [](OrtNodeComputeInfo*, void* state, OrtKernelContext* context) {
            return guarded(
                [&] { static_cast<Kernel*>(static_cast<OrtNodeComputeInfo*>(state))->answer.run(context); });
        };
        ReleaseState = [](OrtNodeComputeInfo*, void*) {};
    }
};

struct Provider : OrtEp {
    const OrtLogger* logger;
    Places places;
    std::string beside;  // the model's path, where the session has it from memory

    Provider(const OrtLogger* logger, const OrtSessionOptions* session) : OrtEp{}, logger(logger) {
        for (const auto& [library, variable] : VARIABLES) {
            places[library] = entry(session, std::string("ep.collageevo.") + library);
            if (const char* place = std::getenv(variable); place && places[library].empty()) places[library] = place;
        }
        beside = entry(session, "ep.context_file_path");
        ort_version_supported = API;
        GetName = [](const OrtEp*) noexcept -> const char* { return NAME; };
        GetCapability = [](OrtEp*, const OrtGraph* graph, OrtEpGraphSupportInfo* support) noexcept {
            return guarded([&] {
                OrtNodeFusionOptions options{};
                options.ort_version_supported = API;
                for (const OrtNode* node : nodes_of(graph))
                    if (is_ours(node)) check(ep_api->EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, &options));
            });
        };
        Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count,
                     OrtNodeComputeInfo** made, OrtNode**) noexcept {
            return guarded([&] {
                std::vector<std::unique_ptr<Kernel>> kernels;  // ONNX Runtime takes all of them or none
                for (size_t k = 0; k < count; ++k)
                    kernels.push_back(static_cast<Provider*>(self)->kernel(graphs[k], fused[k]));
                for (size_t k = 0; k < count; ++k) made[k] = kernels[k].release();
            });
        };
        ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** made, size_t count) noexcept {
            for (size_t k = 0; k < count; ++k) delete static_cast<Kernel*>(made[k]);
        };
    }

   private:
    static std::string entry(const OrtSessionOptions* session, const std::string& name) {
        int has = 0;
        check(ort->HasSessionConfigEntry(session, name.c_str(), &has));
        if (!has) return {};
        size_t size = 0;
        check(ort->GetSessionConfigEntry(session, name.c_str(), nullptr, &size));
        std::string text(size, '\0');
        check(ort->GetSessionConfigEntry(session, name.c_str(), text.data(), &size));
        return text.c_str();
    }

    std::unique_ptr<Kernel> kernel(const OrtGraph* graph, const OrtNode* fused) const {
        const auto nodes = nodes_of(graph);
        if (nodes.size() != 1 || !is_ours(nodes[0]))
            throw std::runtime_error("CollageEvo compiles one EPContext node at a time");
        const std::string name = attribute(nodes[0], "ep_cache_context");
        CheckedFiles::require_inside(name);
        const char* path = nullptr;
        check(ort->Graph_GetModelPath(graph, &path));
        const std::string model = path && *path ? path : beside;
        if (model.empty())
            throw std::runtime_error(
                "a model from memory needs the session option ep.context_file_path: the path of its file, beside "
                "which the answer lies");
        const size_t slash = model.rfind('/');
        const std::string folder = (slash == std::string::npos ? "" : model.substr(0, slash + 1)) + name;
        auto made = std::make_unique<Kernel>(folder, attribute(nodes[0], "notes"), places);
        for (const std::string& text : made->answer.warnings())
            check(ort->Logger_LogMessage(logger, ORT_LOGGING_LEVEL_WARNING, text.c_str(), __FILE__, __LINE__,
                                         "CollageEvo"));
        const Answer& answer = made->answer;
        made->answer.place(indices(answer, answer.inputs(), inputs_of(nodes[0]), inputs_of(fused)),
                           indices(answer, answer.outputs(), outputs_of(nodes[0]), outputs_of(fused)));
        return made;
    }
};

struct Factory : OrtEpFactory {
    Factory() : OrtEpFactory{} {
        ort_version_supported = API;
        GetName = [](const OrtEpFactory*) noexcept -> const char* { return NAME; };
        GetVendor = [](const OrtEpFactory*) noexcept -> const char* { return VENDOR; };
        GetVendorId = [](const OrtEpFactory*) noexcept -> uint32_t { return 0; };
        GetVersion = [](const OrtEpFactory*) noexcept -> const char* { return VERSION; };
        GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                                 OrtEpDevice** made, size_t most, size_t* found) noexcept {
            return guarded([&] {
                *found = 0;
                for (size_t k = 0; k < count && *found < most; ++k)
                    if (ort->HardwareDevice_Type(devices[k]) == OrtHardwareDeviceType_CPU)
                        check(ep_api->CreateEpDevice(self, devices[k], nullptr, nullptr, &made[(*found)++]));
            });
        };
        CreateEp = [](OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                      const OrtSessionOptions* session, const OrtLogger* logger,
                      OrtEp** made) noexcept { return guarded([&] { *made = new Provider(logger, session); }); };
        ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept { delete static_cast<Provider*>(provider); };
        ValidateCompiledModelCompatibilityInfo = [](OrtEpFactory*, const OrtHardwareDevice* const*, size_t,
                                                    const char*,
                                                    OrtCompiledModelCompatibility* found) noexcept -> OrtStatus* {
            *found = OrtCompiledModelCompatibility_EP_NOT_APPLICABLE;
            return nullptr;
        };
        CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                             OrtAllocator** made) noexcept -> OrtStatus* {
            *made = nullptr;  // memory is that of the default allocator
            return nullptr;
        };
        ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
        CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** made) noexcept -> OrtStatus* {
            *made = nullptr;
            return nullptr;
        };
        IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
        CreateSyncStreamForDevice = [](OrtEpFactory*, const OrtMemoryDevice*, const OrtKeyValuePairs*,
                                       OrtSyncStreamImpl** made) noexcept -> OrtStatus* {
            *made = nullptr;
            return nullptr;
        };
    }
};

}  // namespace

EXPORTED OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*, OrtEpFactory** factories,
                                      size_t most, size_t* count) {
    ort = base->GetApi(API);
    if (!ort) return base->GetApi(1)->CreateStatus(ORT_FAIL, "CollageEvo needs ONNX Runtime 1.23 or later");
    ep_api = ort->GetEpApi(), ort_version = base->GetVersionString();
    return guarded([&] {
        if (most < 1) throw std::runtime_error("ONNX Runtime has no place for the factory of CollageEvo");
        factories[0] = new Factory;
        *count = 1;
    });
}

EXPORTED OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
    delete static_cast<Factory*>(factory);
    return nullptr;
}
