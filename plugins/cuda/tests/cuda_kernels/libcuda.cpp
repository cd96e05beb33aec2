// A stand-in for libcuda.so.1 whose modules are shared libraries of kernels for the host (see kernel.h), run at once.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

struct Launch {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  void* stream;
};
using Kernel = void (*)(const Launch*, void**);

namespace {
std::map<std::string, int> launches;  // by kernel
std::map<void*, std::string> names;
std::vector<void*> streams;  // of each launch
constexpr int not_found = 500, invalid_image = 200, invalid_value = 1;
constexpr unsigned most_threads = 1024, most_shared = 227 << 10;
}  // namespace

extern "C" {
int fake_launches() {
  int all = 0;
  for (const auto& [_, count] : launches) all += count;
  return all;
}
void* fake_stream(int launch) { return streams.at(launch); }

int cuModuleLoadData(void** module, const void* image) {
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return invalid_image;
  const size_t size = header->e_shoff + size_t{header->e_shnum} * header->e_shentsize;
  const int file = memfd_create("kernels", 0);
  if (write(file, image, size) != static_cast<ssize_t>(size)) return invalid_image;
  *module = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  return *module ? 0 : invalid_image;
}
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, (std::string("run_") + name).c_str());
  if (!*function) return not_found;
  names[*function] = name;
  return 0;
}
int cuFuncSetAttribute(void*, int, int value) { return value <= static_cast<int>(most_shared) ? 0 : invalid_value; }
int cuLaunchKernelEx(const Launch* launch, void* function, void** arguments, void**) {
  const unsigned* block = launch->block;
  if (block[0] * block[1] * block[2] > most_threads || launch->shared_bytes > most_shared) return invalid_value;
  ++launches[names.at(function)];
  streams.push_back(launch->stream);
  reinterpret_cast<Kernel>(function)(launch, arguments);
  return 0;
}
int cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "Fake GPU", length);
  return 0;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_OF_STAND_IN";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "error of the stand-in";
  return 0;
}
int cuTensorMapEncodeTiled() { return 801; }
}
