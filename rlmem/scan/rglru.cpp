// The gates of RG-LRU: r = sigmoid(p), i = sigmoid(s), log a = -rate * r, b = sqrt(1 - a^2) * i * u.

#include "common.h"
#include "team.h"

namespace {

struct Slots { I heads, width, r0, r1; };

// exp(x) - 1 for x <= 0, by its series where the difference of the other form would cancel
inline R exp_minus_one(R x) {
  const R near = x * (R(1) + x * R(0.5) * Series<3, TERMS + 2>::of(x));
  return x > R(-0.34) ? near : fast_exp(x) - R(1);
}

// gates [n, heads, 2, width] holds p and s of each head; u, a, b [n, heads * width]; rate [heads * width]
void rglru_forward(const R* gates, const R* u, const R* rate, R* a, R* b, Slots s) {
  for (I r = s.r0; r < s.r1; r++)
    for (I k = 0; k < s.heads; k++) {
      const I at = (r * s.heads + k) * s.width;
      const R *__restrict g = gates + 2 * at, *__restrict ut = u + at, *__restrict c = rate + k * s.width;
      R *__restrict an = a + at, *__restrict bn = b + at;
#pragma omp simd
      for (I j = 0; j < s.width; j++) {
        const R log_a = -c[j] * sigmoid(g[j]);
        an[j] = fast_exp(log_a);
        bn[j] = std::sqrt(-exp_minus_one(R(2) * log_a)) * sigmoid(g[s.width + j]) * ut[j];
      }
    }
}

// dgates and du from those of a and b; drate [n, heads * width], one for each slot. The derivative of the square root is
// at most `steepest`.
void rglru_backward(const R* gates, const R* u, const R* rate, const R* a, const R* da, const R* db, R steepest,
                    R* dgates, R* du, R* drate, Slots s) {
  const R least = R(1) / steepest;
  for (I r = s.r0; r < s.r1; r++)
    for (I k = 0; k < s.heads; k++) {
      const I at = (r * s.heads + k) * s.width;
      const R *__restrict g = gates + 2 * at, *__restrict ut = u + at, *__restrict c = rate + k * s.width;
      const R *__restrict an = a + at, *__restrict dan = da + at, *__restrict dbn = db + at;
      R *__restrict dg = dgates + 2 * at, *__restrict dut = du + at, *__restrict dc = drate + at;
#pragma omp simd
      for (I j = 0; j < s.width; j++) {
        const R open = sigmoid(g[j]), in = sigmoid(g[s.width + j]);
        const R root = std::sqrt(-exp_minus_one(R(-2) * c[j] * open)), slope = R(1) / std::max(R(2) * root, least);
        const R log_a = an[j] * (dan[j] - R(2) * an[j] * slope * dbn[j] * in * ut[j]);
        dut[j] = dbn[j] * root * in;
        dg[s.width + j] = dbn[j] * root * ut[j] * in * (R(1) - in);
        dg[j] = -log_a * c[j] * open * (R(1) - open);
        dc[j] = -log_a * open;
      }
    }
}

}  // namespace

extern "C" {
void rglru_forward(const R* gates, const R* u, const R* rate, R* a, R* b, Work<Slots> parts) {
  parts([&](const Slots& s) { rglru_forward(gates, u, rate, a, b, s); });
}
void rglru_backward(const R* gates, const R* u, const R* rate, const R* a, const R* da, const R* db, R steepest,
                    R* dgates, R* du, R* drate, Work<Slots> parts) {
  parts([&](const Slots& s) { rglru_backward(gates, u, rate, a, da, db, steepest, dgates, du, drate, s); });
}
}
