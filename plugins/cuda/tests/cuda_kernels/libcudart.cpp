// A stand-in for libcudart.so.13 whose device memory is the host's: what TVM's CUDA runtime asks of it, done at once.
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {
long memory_calls = 0;  // allocations, frees and waits: none may happen in a call that is captured
long timed = 0;         // what is timed later is faster: a tuner finds the last thing that it tries the best
constexpr int warp_size = 32;
}  // namespace

extern "C" {
using Handle = void*;

long fake_memory_calls() { return memory_calls; }

int cudaMalloc(void** pointer, size_t bytes) {
  ++memory_calls;
  *pointer = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  return *pointer ? 0 : 2;
}
int cudaMallocHost(void** pointer, size_t bytes) { return cudaMalloc(pointer, bytes); }
int cudaFree(void* pointer) {
  ++memory_calls;
  std::free(pointer);
  return 0;
}
int cudaFreeHost(void* pointer) { return cudaFree(pointer); }
int cudaMemcpyAsync(void* target, const void* source, size_t bytes, int, Handle) {
  std::memmove(target, source, bytes);
  return 0;
}
int cudaMemcpyPeerAsync(void* target, int, const void* source, int, size_t bytes, Handle) {
  std::memmove(target, source, bytes);
  return 0;
}
int cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return 0;
}
int cudaStreamSynchronize(Handle) {
  ++memory_calls;
  return 0;
}

int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cudaSetDevice(int) { return 0; }
int cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;          // threads in a block
    case 10: *value = warp_size; break;
    case 75: *value = 9; break;            // compute capability, major
    case 76: *value = 0; break;
    default: *value = 48 << 10;            // shared memory, clocks and what else is asked
  }
  return 0;
}
int cudaGetDeviceProperties(void* properties, int) {
  std::memcpy(properties, "Fake GPU", 9);  // the name is the first field
  return 0;
}
int cudaGetLastError() { return 0; }
int cudaPeekAtLastError() { return 0; }
const char* cudaGetErrorName(int) { return "error"; }
const char* cudaGetErrorString(int) { return "error of the stand-in"; }

int cudaEventCreate(Handle* event) {
  *event = nullptr;
  return 0;
}
int cudaEventDestroy(Handle) { return 0; }
int cudaEventElapsedTime(float* ms, Handle, Handle) {
  *ms = 1000.0f / static_cast<float>(++timed);
  return 0;
}
int cudaEventRecord(Handle, Handle) { return 0; }
int cudaEventSynchronize(Handle) { return 0; }
int cudaStreamCreate(Handle* stream) {
  *stream = nullptr;
  return 0;
}
int cudaStreamCreateWithFlags(Handle* stream, unsigned) { return cudaStreamCreate(stream); }
int cudaStreamDestroy(Handle) { return 0; }
int cudaStreamWaitEvent(Handle, Handle, unsigned) { return 0; }

// TVM's own graphs are not used: who calls one of these is told so.
int cudaStreamBeginCapture(Handle, int) { return 801; }
int cudaStreamEndCapture(Handle, Handle*) { return 801; }
int cudaGraphInstantiate(Handle*, Handle, Handle*, char*, size_t) { return 801; }
int cudaGraphLaunch(Handle, Handle) { return 801; }
int cudaGraphDestroy(Handle) { return 801; }
int cudaGraphExecDestroy(Handle) { return 801; }
}
