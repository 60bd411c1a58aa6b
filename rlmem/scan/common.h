// What the kernels of the `native` engine share. They are called through ctypes; arrays are contiguous where
// no strides are named.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

typedef int64_t I;

typedef REAL R;  // float or double: the kernels of each are a library of their own

const bool SINGLE = sizeof(R) == sizeof(float);
typedef std::conditional<SINGLE, int32_t, int64_t>::type Bits;
enum { BIAS = SINGLE ? 127 : 1023, SHIFT = SINGLE ? 23 : 52 };  // of the exponent among the bits of a number
enum { TERMS = SINGLE ? 8 : 14, ODD = SINGLE ? 15 : 33 };       // of series, for full precision
const R MOST = SINGLE ? 87 : 708;                               // exp is finite up to it

// 1 + f/k (1 + f/(k+1) (1 + ...)), unrolled
template <int k, int terms> struct Series {
  static inline R of(R f) { return R(1) + f * R(1.0 / k) * Series<k + 1, terms>::of(f); }
};
template <int terms> struct Series<terms, terms> {
  static inline R of(R) { return R(1); }
};

// exp by its Taylor series on |x| <= ln(2) / 2 and a power of two: no branch, no call, so that loops vectorise.
inline R fast_exp(R x) {
  x = std::min(std::max(x, -MOST), MOST);  // in this order a NaN stays one
  const R n = std::nearbyint(x * R(1.44269504088896340736));
  const R f = (x - n * R(0.693145751953125)) - n * R(1.42860682030941723212e-6);
  const Bits power = (Bits(n) + Bits(BIAS)) << Bits(SHIFT);
  R scale;
  std::memcpy(&scale, &power, sizeof scale);
  return Series<1, TERMS>::of(f) * scale;
}

inline R sigmoid(R x) { return R(1) / (R(1) + fast_exp(-x)); }

// By its Taylor series where the difference of the other form would cancel
inline R hyperbolic_tangent(R x) {
  const R q = x * x, far = R(2) / (R(1) + fast_exp(R(-2) * x)) - R(1);
  const R near = x * (R(1) + q * (R(-1.0 / 3) + q * (R(2.0 / 15) + q * (R(-17.0 / 315) + q * R(62.0 / 2835)))));
  return std::fabs(x) < R(0.05) ? near : far;
}

// 1/k + q (1/(k+2) + q (1/(k+4) + ...)), unrolled
template <int k, int last> struct Odd {
  static inline R of(R q) { return R(1.0 / k) + q * Odd<k + 2, last>::of(q); }
};
template <int last> struct Odd<last, last> {
  static inline R of(R) { return R(1.0 / last); }
};

// log(1 + x) for x in [0, 1], as 2 artanh(x / (2 + x)) by its series
inline R log_of_one_plus(R x) {
  const R w = x / (R(2) + x), q = w * w;
  return R(2) * w * Odd<1, ODD>::of(q);
}
