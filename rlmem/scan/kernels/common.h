// What the kernels of the `native` engine share. They are called through ctypes; arrays are contiguous where
// no strides are named.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

typedef int64_t I;

template <class R> struct Bits;
template <> struct Bits<float> { typedef int32_t type; enum { bias = 127, shift = 23, terms = 8, most = 87, odd = 15 }; };
template <> struct Bits<double> { typedef int64_t type; enum { bias = 1023, shift = 52, terms = 14, most = 708, odd = 33 }; };

// 1 + f/k (1 + f/(k+1) (1 + ...)), unrolled
template <class R, int k, int terms> struct Series {
  static inline R of(R f) { return R(1) + f * R(1.0 / k) * Series<R, k + 1, terms>::of(f); }
};
template <class R, int terms> struct Series<R, terms, terms> {
  static inline R of(R) { return R(1); }
};

// exp by its Taylor series on |x| <= ln(2) / 2 and a power of two: no branch, no call, so that loops vectorise.
template <class R>
inline R fast_exp(R x) {
  typedef typename Bits<R>::type Int;
  x = std::min(std::max(x, -R(Bits<R>::most)), R(Bits<R>::most));  // in this order a NaN stays one
  const R n = std::nearbyint(x * R(1.44269504088896340736));
  const R f = (x - n * R(0.693145751953125)) - n * R(1.42860682030941723212e-6);
  const Int power = (Int(n) + Int(Bits<R>::bias)) << Int(Bits<R>::shift);
  R scale;
  std::memcpy(&scale, &power, sizeof scale);
  return Series<R, 1, Bits<R>::terms>::of(f) * scale;
}

template <class R>
inline R sigmoid(R x) { return R(1) / (R(1) + fast_exp(-x)); }

// By its Taylor series where the difference of the other form would cancel
template <class R>
inline R hyperbolic_tangent(R x) {
  const R q = x * x, far = R(2) / (R(1) + fast_exp(R(-2) * x)) - R(1);
  const R near = x * (R(1) + q * (R(-1.0 / 3) + q * (R(2.0 / 15) + q * (R(-17.0 / 315) + q * R(62.0 / 2835)))));
  return std::fabs(x) < R(0.05) ? near : far;
}

// 1/k + q (1/(k+2) + q (1/(k+4) + ...)), unrolled
template <class R, int k, int last> struct Odd {
  static inline R of(R q) { return R(1.0 / k) + q * Odd<R, k + 2, last>::of(q); }
};
template <class R, int last> struct Odd<R, last, last> {
  static inline R of(R) { return R(1.0 / last); }
};

// log(1 + x) for x in [0, 1], as 2 artanh(x / (2 + x)) by its series
template <class R>
inline R log_of_one_plus(R x) {
  const R w = x / (R(2) + x), q = w * w;
  return R(2) * w * Odd<R, 1, Bits<R>::odd>::of(q);
}
