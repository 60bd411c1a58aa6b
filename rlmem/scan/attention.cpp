// Softmax attention of every slot to itself and to the slots before it, those of its episode and of a window.
//
// Row r has T slots, whose keys and values lie behind those of S slots before the row. Slot t sees the keys
// S + t - reach, ..., S + t with reach = min(age, S). Slots are read in blocks of BLOCK: scores and sums of a block are
// products over the keys from the first to the last that one of its slots sees.

#include <vector>

#include "gemm.h"
#include "team.h"

namespace {

struct Attention { I B, T, S, heads, width; };

enum { BLOCK = 32 };

bool finite(const R* x, I n) {
  R sum = 0;
#pragma omp simd reduction(+ : sum)
  for (I i = 0; i < n; i++) sum += x[i] * R(0);
  return sum == R(0);
}

// What one row's slots may see. Slots that hold an inf or a NaN are read as zeros, since it would pass a weight of
// zero; a slot that sees one of them, that holds one in its query, or whose age is NaN, is lost: its output is NaN.
class Row {
 public:
  Row(const R* queries, const R* keys, const R* values, const R* age, const Attention& sizes, I r)
      : c(sizes), H(c.heads * c.width), q(queries + r * c.T * H), k(keys + r * (c.S + c.T) * H),
        v(values + r * (c.S + c.T) * H), first(c.T), lost(c.T) {
    const I T = c.T, L = c.S + c.T;
    for (I t = 0; t < T; t++) {
      const R a = age[r * T + t];
      lost[t] = !(a >= 0);
      first[t] = c.S + t - (a >= R(c.S) ? c.S : a >= 0 ? I(a) : 0);
    }
    if (!(finite(k, L * H) && finite(v, L * H))) {
      std::vector<bool> bad(L);
      std::vector<I> before(L + 1, 0);  // bad slots before each
      for (I s = 0; s < L; s++) {
        bad[s] = !(finite(k + s * H, H) && finite(v + s * H, H));
        before[s + 1] = before[s] + bad[s];
      }
      for (I t = 0; t < T; t++) lost[t] = lost[t] || before[c.S + t + 1] > before[first[t]];
      k = without(k, bad, clean_k);
      v = without(v, bad, clean_v);
    }
    if (!finite(q, T * H)) {
      for (I t = 0; t < T; t++) lost[t] = lost[t] || !finite(q + t * H, H);
      q = without(q, lost, clean_q);
    }
  }

  // x [slots, H], or a copy of it in `clean` in which the slots `gone` are zeros, if there are any.
  const R* without(const R* x, const std::vector<bool>& gone, std::vector<R>& clean) const {
    if (std::find(gone.begin(), gone.end(), true) == gone.end()) return x;
    clean.assign(x, x + I(gone.size()) * H);
    for (I s = 0; s < I(gone.size()); s++)
      if (gone[s]) std::fill_n(&clean[s * H], H, R(0));
    return clean.data();
  }

  // Calls `block(t0, n, lo, m)` for slots t0, ..., t0 + n - 1, which see keys among lo, ..., lo + m - 1.
  template <class F>
  void over_blocks(F block) const {
    for (I t0 = 0; t0 < c.T; t0 += BLOCK) {
      const I n = std::min(I(BLOCK), c.T - t0), lo = *std::min_element(&first[t0], &first[t0] + n);
      block(t0, n, lo, c.S + t0 + n - lo);
    }
  }

  const Attention& c;
  const I H;
  const R *q, *k, *v;
  std::vector<I> first;
  std::vector<bool> lost;

 private:
  std::vector<R> clean_q, clean_k, clean_v;
};

// q, y [rows, T, H], k, v [rows, S + T, H] with H = heads * width, age [rows, T]; bias [rows, heads, T, S + 1], null or
// added to the scores, from the farthest slot to this; keeps the logarithm of the weights' sum in sums [rows, heads, T]
void attention_forward(const R* q, const R* k, const R* v, const R* age, const R* bias, R* y, R* sums,
                       Attention c) {
  const I H = c.heads * c.width, d = c.width;
  const R scale = R(1) / std::sqrt(R(d));
  std::vector<R> weights(BLOCK * (BLOCK + c.S));
  const I widest = std::max<I>(d, BLOCK + c.S);
  const Product multiply(widest, widest);
  for (I r = 0; r < c.B; r++) {
    const Row row(q, k, v, age, c, r);
    for (I h = 0; h < c.heads; h++)
      row.over_blocks([&](I t0, I n, I lo, I m) {
        R* w = weights.data();
        multiply(n, d, m, {row.q + t0 * H + h * d, H, 1}, {row.k + lo * H + h * d, 1, H}, nullptr, 0, {w, m, 1});
        for (I i = 0; i < n; i++, w += m) {
          const I t = t0 + i, from = row.first[t] - lo, to = c.S + t + 1 - lo, of = (r * c.heads + h) * c.T + t;
          const R* added = bias ? bias + of * (c.S + 1) + lo - t : nullptr;
#pragma omp simd
          for (I j = from; j < to; j++) w[j] = scale * w[j] + (added ? added[j] : R(0));
          R most = w[from], sum = 0;
#pragma omp simd reduction(max : most)
          for (I j = from; j < to; j++) most = std::max(most, w[j]);
#pragma omp simd reduction(+ : sum)
          for (I j = from; j < to; j++) sum += w[j] = fast_exp(w[j] - most);
          const R part = R(1) / sum;
#pragma omp simd
          for (I j = from; j < to; j++) w[j] *= part;
          std::fill(w, w + from, R(0));
          std::fill(w + to, w + m, R(0));
          sums[of] = most + std::log(sum);
        }
        R* out = y + (r * c.T + t0) * H + h * d;
        multiply(n, m, d, {weights.data(), m, 1}, {row.v + lo * H + h * d, H, 1}, nullptr, 0, {out, H, 1});
      });
    for (I t = 0; t < c.T; t++)
      if (row.lost[t]) std::fill_n(y + (r * c.T + t) * H, H, R(NAN));
  }
}

// dk and dv begin as zeros, as does dbias, if there is a bias
void attention_backward(const R* q, const R* k, const R* v, const R* age, const R* bias, const R* y, const R* sums,
                        const R* dy, R* dq, R* dk, R* dv, R* dbias, Attention c) {
  const I H = c.heads * c.width, d = c.width, L = c.S + c.T;
  const R scale = R(1) / std::sqrt(R(d));
  std::vector<R> weights(BLOCK * (BLOCK + c.S)), scores(BLOCK * (BLOCK + c.S)), clean_dy;
  const I widest = std::max<I>(d, BLOCK + c.S);
  const Product multiply(widest, widest);
  for (I r = 0; r < c.B; r++) {
    const Row row(q, k, v, age, c, r);
    const R* row_dy = row.without(dy + r * c.T * H, row.lost, clean_dy);  // of what is NaN by selection, none
    for (I h = 0; h < c.heads; h++)
      row.over_blocks([&](I t0, I n, I lo, I m) {
        const I in_row = t0 * H + h * d, at = r * c.T * H + in_row, keys = (r * L + lo) * H + h * d;
        const Matrix<const R> Q{row.q + in_row, H, 1}, K{row.k + lo * H + h * d, H, 1}, G{row_dy + in_row, H, 1};
        const Matrix<const R> turned_K{K.at, 1, H}, turned_V{row.v + lo * H + h * d, 1, H};
        R *w = weights.data(), *g = scores.data();
        multiply(n, d, m, Q, turned_K, nullptr, 0, {w, m, 1});
        multiply(n, d, m, G, turned_V, nullptr, 0, {g, m, 1});
        for (I i = 0; i < n; i++, w += m, g += m) {
          const I t = t0 + i, of = (r * c.heads + h) * c.T + t;
          const I from = row.lost[t] ? m : row.first[t] - lo, to = row.lost[t] ? m : c.S + t + 1 - lo;
          const I shift = of * (c.S + 1) + lo - t;
          const R *out = y + at + i * H, *grad = row_dy + in_row + i * H;
          R mean = 0;
#pragma omp simd reduction(+ : mean)
          for (I j = 0; j < d; j++) mean += out[j] * grad[j];
          const R* added = bias ? bias + shift : nullptr;
#pragma omp simd
          for (I j = from; j < to; j++) {
            w[j] = fast_exp(scale * w[j] + (added ? added[j] : R(0)) - sums[of]);
            g[j] = w[j] * (g[j] - mean);
          }
          if (bias) std::copy(g + from, g + to, dbias + shift + from);
#pragma omp simd
          for (I j = from; j < to; j++) g[j] *= scale;
          for (R* x : {w, g}) {
            std::fill(x, x + from, R(0));
            std::fill(x + to, x + m, R(0));
          }
        }
        const Matrix<const R> D{scores.data(), m, 1}, turned_D{scores.data(), 1, m}, turned_W{weights.data(), 1, m};
        multiply(n, m, d, D, K, nullptr, 0, {dq + at, H, 1});
        multiply(m, n, d, turned_D, Q, dk + keys, H, {dk + keys, H, 1});
        multiply(m, n, d, turned_W, G, dv + keys, H, {dv + keys, H, 1});
      });
  }
}

}  // namespace

extern "C" {
void attention_forward(const R* q, const R* k, const R* v, const R* age, const R* bias, R* y, R* sums,
                       Work<Attention> parts) {
  parts([&](const Attention& c) { attention_forward(q, k, v, age, bias, y, sums, c); });
}
void attention_backward(const R* q, const R* k, const R* v, const R* age, const R* bias, const R* y, const R* sums,
                        const R* dy, R* dq, R* dk, R* dv, R* dbias, Work<Attention> parts) {
  parts([&](const Attention& c) { attention_backward(q, k, v, age, bias, y, sums, dy, dq, dk, dv, dbias, c); });
}
}
