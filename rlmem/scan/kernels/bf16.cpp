// C = A B + b of matrices in single precision whose entries are rounded to bfloat16, with sums in single precision, by
// the instruction for it (VDPBF16PS). It multiplies pairs: of 16 columns at once, numbers k and k + 1 of each.

#include <cstdlib>
#include <memory>

#include "common.h"
#include "team.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

namespace {

typedef uint32_t Pair;  // two neighbours along k, the first in the lower half; beyond an odd k a zero

enum {
  ROWS = 6,       // of C at once: with 4 x 16 columns, 24 sums stay in registers
  WIDE = 64,      // columns of C at once
  DEPTH = 512,    // numbers k at once, so that the pairs of B stay in the cache
  CHUNK = 96,     // rows of A at once
};

inline __mmask16 first(I n) { return n >= 16 ? __mmask16(0xFFFF) : n <= 0 ? __mmask16(0) : __mmask16((1u << n) - 1); }

inline __m512i half(__m512 x) { return _mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(x))); }

// 16 pairs of the numbers of two rows
inline __m512i pairs(__m512 low, __m512 high) { return _mm512_or_si512(half(low), _mm512_slli_epi32(half(high), 16)); }

// P [(k1 - k0) / 2, stride] of columns [n0, n1) of X [k, n], zeros up to column n0 + stride
inline void pack_across(const float* X, I n, I k0, I k1, I n0, I n1, I stride, Pair* P) {
  for (I k = k0; k < k1; k += 2, P += stride)
    for (I j = 0; j < stride; j += 16) {
      const __mmask16 in = first(n1 - n0 - j);
      const float* at = X + k * n + n0 + j;
      const __m512 low = _mm512_maskz_loadu_ps(in, at);
      const __m512 high = _mm512_maskz_loadu_ps(k + 1 < k1 ? in : __mmask16(0), k + 1 < k1 ? at + n : at);
      _mm512_mask_storeu_epi32(P + j, first(stride - j), pairs(low, high));
    }
}

// P [n1 - n0, (k1 - k0) / 2] of rows [n0, n1) of X [n, k]
inline void pack_along(const float* X, I k, I k0, I k1, I n0, I n1, Pair* P) {
  for (I row = n0; row < n1; ++row) {
    const float* at = X + row * k;
    uint16_t* to = reinterpret_cast<uint16_t*>(P + (row - n0) * ((k1 - k0 + 1) / 2));
    for (I j = k0; j < k1; j += 16)
      _mm256_mask_storeu_epi16(to + (j - k0), first((k1 - k0 + 1) / 2 * 2 - (j - k0)),
                               __m256i(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(first(k1 - j), at + j))));
  }
}

// C [rows, 16 V] (+)= sum over k of the pairs of A, `row` and `step` apart along rows and k, and of B [k, WIDE]
template <int R, int V>
void block(const Pair* A, I row, I step, const Pair* B, I depth, float* C, I m, I columns, const float* b, bool add) {
  __m512 sum[R][V];
  for (int v = 0; v < V; ++v) {
    const __m512 begin = b ? _mm512_maskz_loadu_ps(first(columns - 16 * v), b + 16 * v) : _mm512_setzero_ps();
    for (int r = 0; r < R; ++r)
      sum[r][v] = add ? _mm512_maskz_loadu_ps(first(columns - 16 * v), C + r * m + 16 * v) : begin;
  }
  for (I k = 0; k < depth; ++k, A += step, B += WIDE) {
    __m512bh right[V];
    for (int v = 0; v < V; ++v) right[v] = __m512bh(_mm512_load_si512(B + 16 * v));
    for (int r = 0; r < R; ++r) {
      const __m512bh left = __m512bh(_mm512_set1_epi32(int(A[r * row])));
      for (int v = 0; v < V; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right[v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) _mm512_mask_storeu_ps(C + r * m + 16 * v, first(columns - 16 * v), sum[r][v]);
}

typedef void (*Block)(const Pair*, I, I, const Pair*, I, float*, I, I, const float*, bool);

template <int R>
Block of_width(I columns) {
  return columns > 48 ? block<R, 4> : columns > 32 ? block<R, 3> : columns > 16 ? block<R, 2> : block<R, 1>;
}

Block of_shape(I rows, I columns) {
  switch (rows) {
    case 1: return of_width<1>(columns);
    case 2: return of_width<2>(columns);
    case 3: return of_width<3>(columns);
    case 4: return of_width<4>(columns);
    case 5: return of_width<5>(columns);
    default: return of_width<6>(columns);
  }
}

struct Free { void operator()(Pair* p) const { std::free(p); } };

struct Numbers { I n, k, m, n0, n1; };

// Rows [n0, n1) of C [n, m] = A [n, k] B [k, m] + b [m]. A is stored as [k, n] if a_turned, and B as [m, k] if b_turned;
// b may be null.
void multiply_rows(const float* A, I a_turned, const float* B, I b_turned, const float* b, float* C, const Numbers& s) {
  const I panels = (s.m + WIDE - 1) / WIDE, half_depth = DEPTH / 2, panel = half_depth * WIDE;
  const I numbers = panels * panel + CHUNK * half_depth + WIDE * half_depth;
  const std::unique_ptr<Pair, Free> room(static_cast<Pair*>(std::aligned_alloc(64, numbers * sizeof(Pair))));
  Pair *const right = room.get(), *const left = right + panels * panel, *const turned = left + CHUNK * half_depth;
  for (I k0 = 0; k0 == 0 || k0 < s.k; k0 += DEPTH) {  // also without any k
    const I k1 = std::min(s.k, k0 + DEPTH), depth = (k1 - k0 + 1) / 2;
    for (I p = 0; p < panels; ++p) {
      const I m0 = p * WIDE, m1 = std::min(s.m, m0 + WIDE);
      if (!b_turned) {
        pack_across(B, s.m, k0, k1, m0, m1, WIDE, right + p * panel);
        continue;
      }
      pack_along(B, s.k, k0, k1, m0, m1, turned);
      for (I j = 0; j < WIDE; ++j)
        for (I k = 0; k < depth; ++k) right[p * panel + k * WIDE + j] = j < m1 - m0 ? turned[j * depth + k] : 0;
    }
    for (I c0 = s.n0; c0 < s.n1; c0 += CHUNK) {
      const I c1 = std::min(s.n1, c0 + CHUNK);
      if (a_turned)
        pack_across(A, s.n, k0, k1, c0, c1, CHUNK, left);
      else
        pack_along(A, s.k, k0, k1, c0, c1, left);
      const I row = a_turned ? 1 : depth, step = a_turned ? I(CHUNK) : 1;
      for (I p = 0; p < panels; ++p) {
        const I m0 = p * WIDE, columns = std::min<I>(s.m - m0, WIDE);
        for (I r = c0; r < c1; r += ROWS) {
          const Block run = of_shape(std::min<I>(c1 - r, ROWS), columns);
          run(left + (r - c0) * row, row, step, right + p * panel, depth, C + r * s.m + m0, s.m, columns,
              b ? b + m0 : nullptr, k0 > 0);
        }
      }
    }
  }
}

}  // namespace

extern "C" void bf16_product_float32(const float* A, I a_turned, const float* B, I b_turned, const float* b, float* C,
                                     Work<Numbers> parts) {
  parts([&](const Numbers& s) { multiply_rows(A, a_turned, B, b_turned, b, C, s); });
}
#endif
