// Runs generated CUDA C on the host, a block after the other. A thread is a fiber of its own; it yields where CUDA's
// threads meet. What must hold on a GPU whatever the order of threads holds here in one order.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN

struct uint3 {
  unsigned x, y, z;
};
static uint3 threadIdx, blockIdx;

template <class T>
struct Pair {
  T x, y;
};
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T x, y, z, w;
};
#define VECTORS(name, type)                                                  \
  struct alignas(2 * sizeof(type)) name##2 : Pair<type> {};                  \
  using name##4 = Four<type>;                                                \
  static inline name##2 make_##name##2(type x, type y) { return {{x, y}}; }  \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(uint, unsigned)
VECTORS(longlong, long long)
VECTORS(uchar, unsigned char)
VECTORS(char, signed char)

template <class T>
static inline T max(T a, T b) { return a < b ? b : a; }
template <class T>
static inline T min(T a, T b) { return b < a ? b : a; }
// The names are glibc's own, too.
#define __expf expf
#define __powf powf
#define __logf logf
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

namespace emulated {
constexpr int warp = 32, stack_bytes = 64 << 10;
enum class State { running, at_block, at_warp, done };

struct Fiber {
  ucontext_t context;
  State state = State::running;
  uint3 thread;
  std::vector<char> stack = std::vector<char>(stack_bytes);
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static size_t current;
static std::function<void()> body;
static uint64_t slots[1024];  // what the lanes of a warp show each other

static inline void wait(State where) {
  fibers[current].state = where;
  swapcontext(&fibers[current].context, &scheduler);
}

static inline void begin() {
  body();
  fibers[current].state = State::done;
}

static inline bool any(State state) {
  return std::any_of(fibers.begin(), fibers.end(), [&](const Fiber& one) { return one.state == state; });
}

static inline void run_block(const unsigned* threads) {
  const size_t count = size_t{threads[0]} * threads[1] * threads[2];
  if (fibers.size() != count) fibers = std::vector<Fiber>(count);
  for (size_t k = 0; k < count; ++k) {
    Fiber& one = fibers[k];
    one.state = State::running;
    one.thread = {unsigned(k % threads[0]), unsigned(k / threads[0] % threads[1]),
                  unsigned(k / threads[0] / threads[1])};
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack.data();
    one.context.uc_stack.ss_size = one.stack.size();
    one.context.uc_link = &scheduler;
    makecontext(&one.context, begin, 0);
  }
  while (any(State::running)) {
    for (current = 0; current < count; ++current) {
      if (fibers[current].state != State::running) continue;
      threadIdx = fibers[current].thread;
      swapcontext(&scheduler, &fibers[current].context);
    }
    // All are held up: those that wait for their warp go on first, and only if there are none, the block does.
    const State met = any(State::at_warp) ? State::at_warp : State::at_block;
    for (Fiber& one : fibers)
      if (one.state == met) one.state = State::running;
  }
}

struct Launch {
  unsigned grid[3], block[3];
};

template <class... Arguments, size_t... I>
void call(void (*kernel)(Arguments...), void** given, std::index_sequence<I...>) {
  kernel(*static_cast<std::decay_t<Arguments>*>(given[I])...);
}

// Every block of a launch; `meet` says whether its threads do.
template <class... Arguments>
void run(void (*kernel)(Arguments...), const Launch* launch, void** given, bool meet) {
  body = [=] { call(kernel, given, std::index_sequence_for<Arguments...>()); };
  for (blockIdx.z = 0; blockIdx.z < launch->grid[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < launch->grid[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < launch->grid[0]; ++blockIdx.x) {
        if (meet) {
          run_block(launch->block);
          continue;
        }
        for (threadIdx.z = 0; threadIdx.z < launch->block[2]; ++threadIdx.z)
          for (threadIdx.y = 0; threadIdx.y < launch->block[1]; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < launch->block[0]; ++threadIdx.x) body();
      }
}

template <class T>
static inline T shown(T value, int lane) {
  reinterpret_cast<T&>(slots[current]) = value;
  wait(State::at_warp);
  const T got = reinterpret_cast<T&>(slots[current / warp * warp + lane]);
  wait(State::at_warp);
  return got;
}
static inline int lane() { return current % warp; }
}  // namespace emulated

static inline void __syncthreads() { emulated::wait(emulated::State::at_block); }
static inline void __syncwarp(unsigned = 0) { emulated::wait(emulated::State::at_warp); }
static inline unsigned __activemask() { return 0xffffffffu; }
template <class T>
static inline T __shfl_sync(unsigned, T value, int from, int width = 32) {
  return emulated::shown(value, emulated::lane() / width * width + from % width);
}
template <class T>
static inline T __shfl_down_sync(unsigned, T value, unsigned offset, int width = 32) {
  const int lane = emulated::lane(), from = lane + offset;
  return emulated::shown(value, from / width == lane / width ? from : lane);
}
template <class T>
static inline T __shfl_up_sync(unsigned, T value, unsigned offset, int width = 32) {
  const int lane = emulated::lane(), from = lane - int(offset);
  return emulated::shown(value, from >= lane / width * width ? from : lane);
}
