// ONNX Runtime's C API as this library uses it: version 23, which every later release serves.
#pragma once
#include <onnxruntime_c_api.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

inline constexpr uint32_t API = 23;
inline const OrtApi* ort = nullptr;
inline std::string ort_version;

struct OrtFailure : std::runtime_error {
    OrtErrorCode code;
    OrtFailure(OrtErrorCode code, const std::string& message) : std::runtime_error(message), code(code) {}
};

inline void check(OrtStatus* status) {
    if (!status) return;
    const OrtFailure failure(ort->GetErrorCode(status), ort->GetErrorMessage(status));
    ort->ReleaseStatus(status);
    throw failure;
}

// What ``work`` throws, as a status of one line: no exception may cross the C interface.
template <class Work>
OrtStatus* guarded(Work&& work) noexcept {
    OrtErrorCode code = ORT_FAIL;
    std::string message;
    try {
        work();
        return nullptr;
    } catch (const OrtFailure& failure) {
        code = failure.code, message = failure.what();
    } catch (const std::exception& failure) {
        message = failure.what();
    } catch (...) {
        message = "a library threw something that is no exception";
    }
    for (char& letter : message)
        if (letter == '\n' || letter == '\r') letter = ' ';
    return ort->CreateStatus(code, message.c_str());
}

#define OWNED(TYPE)                                                                   \
    struct Release##TYPE {                                                            \
        void operator()(Ort##TYPE* held) const noexcept { ort->Release##TYPE(held); } \
    };                                                                                \
    using Owned##TYPE = std::unique_ptr<Ort##TYPE, Release##TYPE>;
OWNED(Env)
OWNED(Session)
OWNED(SessionOptions)
OWNED(Value)
OWNED(TensorTypeAndShapeInfo)
OWNED(TypeInfo)
#undef OWNED

inline void tensor_of(const OrtTensorTypeAndShapeInfo* info, ONNXTensorElementDataType& type,
                      std::vector<int64_t>& shape) {
    check(ort->GetTensorElementType(info, &type));
    size_t rank = 0;
    check(ort->GetDimensionsCount(info, &rank));
    shape.resize(rank);
    check(ort->GetDimensions(info, shape.data(), rank));
}

inline void tensor_of(const OrtValue* value, ONNXTensorElementDataType& type, std::vector<int64_t>& shape) {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(ort->GetTensorTypeAndShape(value, &info));
    const OwnedTensorTypeAndShapeInfo owned(info);
    tensor_of(info, type, shape);
}

// What a graph or a session declares; of something that is no tensor the type is undefined.
inline void tensor_of(const OrtTypeInfo* declared, ONNXTensorElementDataType& type, std::vector<int64_t>& shape) {
    const OrtTensorTypeAndShapeInfo* info = nullptr;
    check(ort->CastTypeInfoToTensorInfo(declared, &info));
    type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    if (info) tensor_of(info, type, shape);
}

inline void* data_of(OrtValue* value) {
    void* data = nullptr;
    check(ort->GetTensorMutableData(value, &data));
    return data;
}
