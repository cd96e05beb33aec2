// Runs an exported answer: run LIBRARY MODEL INPUT OUTPUT REQUESTS, with raw files of float32; prints microseconds a
// request.
#include <onnxruntime_cxx_api.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

int main(int count, char** arguments) try {
    if (count != 6) throw std::runtime_error("give LIBRARY MODEL INPUT OUTPUT REQUESTS");
    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "run");
    env.RegisterExecutionProviderLibrary("CollageEvo", arguments[1]);
    std::vector<Ort::ConstEpDevice> devices;
    for (const Ort::ConstEpDevice& device : env.GetEpDevices())
        if (std::string(device.EpName()) == "CollageEvo") devices.push_back(device);
    Ort::SessionOptions options;
    options.AppendExecutionProvider_V2(env, devices, std::unordered_map<std::string, std::string>{});
    Ort::Session session(env, arguments[2], options);

    std::ifstream file(arguments[3], std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const auto shape = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape();
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const auto input = Ort::Value::CreateTensor(memory, bytes.data(), bytes.size(), shape.data(), shape.size(),
                                                ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
    const auto names = session.GetInputNames(), made_names = session.GetOutputNames();
    const char *name = names[0].c_str(), *made_name = made_names[0].c_str();
    std::vector<Ort::Value> made;
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < std::stoi(arguments[5]); ++k) made = session.Run({}, &name, &input, 1, &made_name, 1);
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.1f\n", taken.count() / std::stoi(arguments[5]));
    const size_t size = made[0].GetTensorTypeAndShapeInfo().GetElementCount() * sizeof(float);
    std::ofstream(arguments[4], std::ios::binary)
        .write(static_cast<const char*>(made[0].GetTensorRawData()), std::streamsize(size));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
