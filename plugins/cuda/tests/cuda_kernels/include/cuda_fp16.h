// float16 for generated CUDA C on the host: kept as 16 bits, computed in float.
#pragma once
#include <cstring>

#include "kernel.h"

struct half {
  uint16_t bits = 0;

  half() = default;
  template <class T>
  half(T number) : bits(rounded(static_cast<float>(number))) {}
  operator float() const {
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = std::ldexp(static_cast<float>(exponent ? fraction | 1024 : fraction), exponent ? int(exponent) - 25 : -24);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return bits >> 15 ? -size : size;
  }
  half& operator+=(half other) { return *this = half(float(*this) + float(other)); }

 private:
  // To the nearest, ties to even: the sum with a number of the right size drops what does not fit.
  static uint16_t rounded(float number) {
    const uint16_t sign = std::signbit(number) ? 0x8000 : 0;
    const float size = std::fabs(number);
    if (std::isnan(number)) return 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size == 0.0f) return sign;
    int exponent = 0;
    std::frexp(size, &exponent);
    const int unit = std::max(exponent - 11, -24);  // of the last place
    const auto places = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -unit)));
    // A fraction that rounds up to 2048 carries into the exponent by itself.
    return sign | static_cast<uint16_t>((unit + 24) * 1024 + places);
  }
};
using __half = half;
struct alignas(4) half2 : Pair<half> {};
using __half2 = half2;
static inline half2 make_half2(half x, half y) { return {{x, y}}; }
static inline half __float2half_rn(float x) { return half(x); }
static inline half __float2half(float x) { return half(x); }
static inline float __half2float(half x) { return x; }
static inline bool __hgt(half a, half b) { return float(a) > float(b); }
static inline bool __hlt(half a, half b) { return float(a) < float(b); }
