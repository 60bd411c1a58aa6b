// Products of matrices, C = A B + begin. An entry of C is summed along k in an order that depends on k alone: DEPTH numbers
// at a time, and then these sums. So a row of C does not depend on the rows beside it: what slots give together, in a
// minibatch, is to the bit what each of them gives alone.

#pragma once

#include <memory>

#include "common.h"

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8, TILE_VECTORS = 3 };  // 24 sums, in 32 registers
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 6, TILE_VECTORS = 2 };  // 12 sums, in 16 registers
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 6, TILE_VECTORS = 2 };
#endif

enum {
  DEPTH = 256,     // numbers along k at once: panels stay in the cache, and long sums stay exact
  CHUNK = 64,      // rows of a turned A at once
  NEAR = 1 << 17,  // numbers of A that are multiplied with all of B at once, so that they stay in the cache
};

// A vector of `count` numbers, at any address
struct Wide {
  enum { count = VECTOR_BYTES / sizeof(R) };
  typedef R type __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(R)), may_alias));
};

// Entry (i, j) stands at[i * row + j * column].
template <class Number>
struct Matrix {
  Number* at;
  I row, column;
  Matrix from(I i, I j) const { return {at + i * row + j * column, row, column}; }
};

// Numbers of the panels of m columns of k numbers each
constexpr I panels_size(I k, I m) { return (m + Wide::count - 1) / Wide::count * Wide::count * k; }

// P: the columns of B [k, m] in panels [k, count] of `count` columns each, the last filled up with zeros
inline void pack(Matrix<const R> B, I k, I m, R* P) {
  constexpr I count = Wide::count;
  typedef Wide::type V;
  for (I first = 0; first < m; first += count, P += k * count) {
    const Matrix<const R> X = B.from(0, first);
    const I columns = std::min(count, m - first);
    I done = 0;
    if (columns == count && X.column == 1)
      for (; done < k; ++done) *(V*)(P + done * count) = *(const V*)(X.at + done * X.row);
    if (columns == count && X.row == 1)
      for (; done + count <= k; done += count) {  // a square at a time, so that lines are read whole
        R square[count * count];
        for (I j = 0; j < count; ++j) *(V*)(square + j * count) = *(const V*)(X.at + j * X.column + done);
        for (I i = 0; i < count; ++i)
          for (I j = 0; j < count; ++j) P[(done + i) * count + j] = square[j * count + i];
      }
    for (; done < k; ++done)
      for (I j = 0; j < count; ++j) P[done * count + j] = j < columns ? X.at[done * X.row + j * X.column] : R(0);
  }
}

// N rows and M panels, `panel` numbers apart, of C = begin + A P; `columns` of them if it is one panel. Rows of `begin`,
// zeros if null, are `step` apart.
template <int N, int M>
inline void tile(I k, I columns, Matrix<const R> A, const R* P, I panel, const R* begin, I step, Matrix<R> C) {
  constexpr int count = Wide::count;
  typedef Wide::type V;
  V sum[N][M] = {};
  for (I i = 0; i < k; ++i) {
    V right[M];
    for (int v = 0; v < M; ++v) right[v] = *(const V*)(P + v * panel + i * count);
    for (int r = 0; r < N; ++r) {
      const R left = A.at[r * A.row + i * A.column];
      for (int v = 0; v < M; ++v) sum[r][v] += left * right[v];
    }
  }
  const bool whole = M > 1 || columns == count;
  for (int r = 0; begin && r < N; ++r)
    for (int v = 0; v < M; ++v) {
      const R* from = begin + r * step + v * count;
      V first = {};
      if (whole) first = *(const V*)from;
      else std::memcpy(&first, from, columns * sizeof(R));
      sum[r][v] += first;
    }
  for (int r = 0; r < N; ++r)
    for (int v = 0; v < M; ++v) {
      R* to = C.at + r * C.row + v * count;
      if (whole) *(V*)to = sum[r][v];
      else std::memcpy(to, &sum[r][v], columns * sizeof(R));
    }
}

template <int M, int N = TILE_ROWS>
inline void tile_of(I rows, I k, I columns, Matrix<const R> A, const R* P, I panel, const R* begin, I step, Matrix<R> C) {
  if constexpr (N > 1)
    if (rows < N) return tile_of<M, N - 1>(rows, k, columns, A, P, panel, begin, step, C);
  if constexpr (N * M > 1) return tile<N, M>(k, columns, A, P, panel, begin, step, C);
  // For some processors GCC rounds the products of a sum alone, and not those of several. So it is computed twice, and the
  // compiler is not told.
  I none = 0;
  asm("" : "+r"(none));
  tile<2, M>(k, columns, {A.at, none, A.column}, P, panel, begin, none, {C.at, none, 1});
}

// All n rows of M panels, in tiles as even as can be
template <int M>
inline void strip(I n, I k, I columns, Matrix<const R> A, const R* P, I panel, const R* begin, I step, Matrix<R> C) {
  for (I r = 0; r < n;) {
    const I tiles = (n - r + TILE_ROWS - 1) / TILE_ROWS, rows = (n - r + tiles - 1) / tiles;
    tile_of<M>(rows, k, columns, A.from(r, 0), P, panel, begin ? begin + r * step : begin, step, C.from(r, 0));
    r += rows;
  }
}

// C [n, m] = begin + A [n, k] B for at most DEPTH numbers k; as `multiply`, with panels that are `panel` numbers apart
inline void block(I n, I k, I m, Matrix<const R> A, const R* P, I panel, const R* begin, I step, Matrix<R> C) {
  constexpr I count = Wide::count;
  const I most = std::max<I>(NEAR / std::max<I>(k, 1) / TILE_ROWS, 1) * TILE_ROWS;
  for (I r = 0; r < n; r += most)
    for (I j = 0, taken; j < m; j += taken * count) {
      const I whole = (m - j) / count;
      taken = whole >= TILE_VECTORS && whole != TILE_VECTORS + 1 ? I(TILE_VECTORS) : whole >= 2 ? 2 : 1;
      const auto run = taken == TILE_VECTORS ? strip<TILE_VECTORS> : taken == 2 ? strip<2> : strip<1>;
      run(std::min(most, n - r), k, std::min(count, m - j), A.from(r, 0), P + j / count * panel, panel,
          begin ? begin + r * step + j : begin, step, C.from(r, j));
    }
}

// C [n, m] = begin + A [n, k] B [k, m] for B in panels. Rows of C are contiguous; those of `begin` [n, m], zeros if null,
// are `step` apart (0: a single row for all), and may be C's.
inline void multiply(I n, I k, I m, Matrix<const R> A, const R* P, const R* begin, I step, Matrix<R> C) {
  constexpr I count = Wide::count;
  for (I k0 = 0; k0 == 0 || k0 < k; k0 += DEPTH, begin = C.at, step = C.row)  // also without any k
    block(n, std::min<I>(k - k0, DEPTH), m, A.from(0, k0), P + k0 * count, k * count, begin, step, C);
}

// Products with matrices that are not in panels
struct Product {
  std::unique_ptr<R[]> right, left;

  // k, m: the most that will be asked for
  Product(I k, I m)
      : right(new R[panels_size(std::min<I>(k, DEPTH), m)]), left(new R[CHUNK * std::min<I>(k, DEPTH)]) {}

  // As `multiply`
  void operator()(I n, I k, I m, Matrix<const R> A, Matrix<const R> B, const R* begin, I step, Matrix<R> C) const {
    for (I k0 = 0; k0 == 0 || k0 < k; k0 += DEPTH, begin = C.at, step = C.row) {
      const I depth = std::min<I>(k - k0, DEPTH), panel = depth * Wide::count;
      pack(B.from(k0, 0), depth, m, right.get());
      if (A.row != 1) {
        block(n, depth, m, A.from(0, k0), right.get(), panel, begin, step, C);
        continue;
      }
      for (I r = 0; r < n; r += CHUNK) {  // what is read along k is brought together: such lines share a few sets of a cache
        const I rows = std::min<I>(n - r, CHUNK);
        const Matrix<const R> X = A.from(r, k0);
        for (I i = 0; i < depth; ++i)
          for (I j = 0; j < rows; ++j) left[i * CHUNK + j] = X.at[j + i * X.column];
        block(rows, depth, m, {left.get(), 1, CHUNK}, right.get(), panel, begin ? begin + r * step : begin, step,
              C.from(r, 0));
      }
    }
  }
};
