// Warp matrices for generated CUDA C on the host: a warp's first lane holds all of a matrix, and the others keep step.
#pragma once
#include "cuda_fp16.h"

namespace nvcuda::wmma {
static inline bool first() { return emulated::lane() == 0; }

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment;
template <int m, int n, int k, class T, class Layout>
struct fragment<matrix_a, m, n, k, T, Layout> {
  T at[m][k];
  static constexpr bool turned = std::is_same_v<Layout, col_major>;
};
template <int m, int n, int k, class T, class Layout>
struct fragment<matrix_b, m, n, k, T, Layout> {
  T at[k][n];
  static constexpr bool turned = std::is_same_v<Layout, col_major>;
};
template <int m, int n, int k, class T>
struct fragment<accumulator, m, n, k, T> {
  T at[m][n];
};

template <class F, class T>
void fill_fragment(F& matrix, T value) {
  for (auto& row : matrix.at)
    for (auto& element : row) element = value;
}
template <class F, class T>
void load_matrix_sync(F& matrix, const T* from, unsigned stride) {
  __syncwarp();
  if (!first()) return __syncwarp();
  size_t i = 0;
  for (auto& row : matrix.at) {
    size_t j = 0;
    for (auto& element : row) {
      element = F::turned ? from[j * stride + i] : from[i * stride + j];
      ++j;
    }
    ++i;
  }
  __syncwarp();
}
template <class F, class T>
void store_matrix_sync(T* to, const F& matrix, unsigned stride, layout_t layout) {
  __syncwarp();
  if (!first()) return __syncwarp();
  size_t i = 0;
  for (auto& row : matrix.at) {
    size_t j = 0;
    for (auto& element : row) {
      (layout == mem_col_major ? to[j * stride + i] : to[i * stride + j]) = element;
      ++j;
    }
    ++i;
  }
  __syncwarp();
}
template <int m, int n, int k, class T, class S, class LA, class LB>
void mma_sync(fragment<accumulator, m, n, k, S>& d, const fragment<matrix_a, m, n, k, T, LA>& a,
              const fragment<matrix_b, m, n, k, T, LB>& b, const fragment<accumulator, m, n, k, S>& c) {
  if (!first()) return;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = c.at[i][j];
      for (int l = 0; l < k; ++l) sum += float(a.at[i][l]) * float(b.at[l][j]);
      d.at[i][j] = S(sum);
    }
}
}  // namespace nvcuda::wmma
