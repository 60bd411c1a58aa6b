// Generalised advantages.
//
// One pass for the differences x_t and decays d_t (zero where nothing follows), in vectors; one for A_t = x_t + d_t A_{t+1},
// of 8 sequences side by side, which hides the latency of each.

#include <memory>

#include "common.h"
#include "team.h"

namespace {

struct Rows { I T, r0, r1; };

void differences(const R* __restrict reward, const R* __restrict value, const uint8_t* __restrict terminated,
                 const uint8_t* __restrict mask, R gamma, R decay, R* __restrict x, R* __restrict d, I T) {
  for (I t = 0; t < T - 1; t++) {
    const R last = reward[t] - value[t], more = last + gamma * value[t + 1];
    const bool acted = mask[t], ended = terminated[t];
    x[t] = acted ? (ended ? last : more) : R(0);
    d[t] = acted && !ended ? decay : R(0);
  }
  x[T - 1] = mask[T - 1] ? reward[T - 1] - value[T - 1] : R(0);
  d[T - 1] = 0;
}

// A macro, because functions are not inlined into one that is optimised otherwise.
#define FOLLOW(t, next) (x[t] = d[t] == 0 ? x[t] : x[t] + d[t] * (next))

// x and d: 8 sequences of `length`, `stride` apart, walked from their ends; from zero, or from what stands behind them
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-vectorize", "no-tree-slp-vectorize")))  // gathers are slower than eight scalars
#endif
void side_by_side(R* __restrict x, const R* __restrict d, I length, I stride) {
  R a = 0, b = 0, c = 0, e = 0, f = 0, g = 0, h = 0, i = 0;
  for (I t = length - 1; t >= 0; t--) {
    a = FOLLOW(t, a);
    b = FOLLOW(t + stride, b);
    c = FOLLOW(t + 2 * stride, c);
    e = FOLLOW(t + 3 * stride, e);
    f = FOLLOW(t + 4 * stride, f);
    g = FOLLOW(t + 5 * stride, g);
    h = FOLLOW(t + 6 * stride, h);
    i = FOLLOW(t + 7 * stride, i);
  }
}

// One row alone: 8 stretches of it, then what flows into each from the one behind, as far as d allows.
void stretches(R* x, const R* d, R decay, I T) {
  const I length = (T / 8 - 1) | 1, rest = T - 8 * length;  // odd, so that stretches do not share cache sets
  side_by_side(x + rest, d + rest, length, length);
  for (int s = 6; s >= 0; s--) {
    const I first = rest + s * length, end = first + length;
    R power = decay * x[end];
    for (I t = end - 1; t >= first && d[t] != 0; t--, power *= decay) x[t] += power;
  }
  for (I t = rest - 1; t >= 0; t--) FOLLOW(t, x[t + 1]);
}

void advantages(const R* reward, const R* value, const uint8_t* terminated, const uint8_t* mask, R gamma, R decay, R* A,
                Rows s) {
  const std::unique_ptr<R[]> decays(new R[std::min(I(8), s.r1 - s.r0) * s.T]);
  for (I r = s.r0; r < s.r1; r += 8) {
    const I rows = std::min(I(8), s.r1 - r);
    for (I k = 0; k < rows; k++) {
      const I o = (r + k) * s.T;
      differences(reward + o, value + o, terminated + o, mask + o, gamma, decay, A + o, decays.get() + k * s.T, s.T);
    }
    if (rows == 8)
      side_by_side(A + r * s.T, decays.get(), s.T, s.T);
    else
      for (I k = 0; k < rows; k++) {
        R *x = A + (r + k) * s.T, *d = decays.get() + k * s.T;
        if (s.T >= 64)
          stretches(x, d, decay, s.T);
        else
          for (I t = s.T - 2; t >= 0; t--) FOLLOW(t, x[t + 1]);
      }
  }
}

}  // namespace

extern "C" {
void advantages(const R* reward, const R* value, const uint8_t* terminated, const uint8_t* mask, R gamma, R decay, R* A,
                Work<Rows> parts) {
  parts([&](const Rows& s) { if (s.T > 0) advantages(reward, value, terminated, mask, gamma, decay, A, s); });
}
}
