// BLAS's matrix product, whose address is passed to the kernels that need one. BLAS sees every matrix transposed.

#pragma once

#include "common.h"

template <class R>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const R*, const R*, const int*,
                      const R*, const int*, const R*, R*, const int*);

// A matrix of rows that begin `step` numbers apart; `turned` takes it transposed.
template <class R>
struct Matrix { R* at; I step; bool turned = false; };

// C [n, m] = alpha A B + beta C for A [n, k] and B [k, m], as they are once turned
template <class R>
inline void multiply(I gemm, I n, I k, I m, R alpha, Matrix<const R> A, Matrix<const R> B, R beta, Matrix<R> C) {
  const int N = int(n), K = int(k), M = int(m), a = int(A.step), b = int(B.step), c = int(C.step);
  const auto run = reinterpret_cast<Gemm<R>>(gemm);
  run(B.turned ? "T" : "N", A.turned ? "T" : "N", &M, &N, &K, &alpha, B.at, &b, A.at, &a, &beta, C.at, &c);
}
