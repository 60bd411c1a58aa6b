// The selective scan: h_t = exp(dt_t A) h_{t-1} + d_t u_t B_t, y_t = h_t C_t, with d = (exp(dt A) - 1) / A, or dt.
//
// h [E, N]. A channel follows from its own numbers alone, so W of them at a time are walked through all slots, with h as
// [N, W]: it stays in the first-level cache, and sums over N stay in vectors. On the way back, h is stored every few
// slots, and the slots between are walked again.

#include <vector>

#include "common.h"
#include "team.h"

namespace {

const int W = 32;

struct Selective { I T, E, N, every, r0, r1; };

// 1/k! + f (1/(k+1)! + f (...)), unrolled
template <int k, int last> struct Inverse {
  static constexpr double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }
  static inline R of(R f) { return R(1 / factorial(k)) + f * Inverse<k + 1, last>::of(f); }
};
template <int last> struct Inverse<last, last> {
  static inline R of(R) { return R(1 / Inverse<1, 2>::factorial(last)); }
};

// exp(x) - 1 for x <= 0, as `fast_exp`, without the cancellation near zero
inline R growth(R x) {
  x = std::max(x, -MOST);  // in this order a NaN stays one
  const R n = std::nearbyint(x * R(1.44269504088896340736));
  const R f = (x - n * R(0.693145751953125)) - n * R(1.42860682030941723212e-6);
  const Bits power = (Bits(n) + Bits(BIAS)) << Bits(SHIFT);
  R scale;
  std::memcpy(&scale, &power, sizeof scale);
  return scale * (f * Inverse<1, TERMS - 1>::of(f)) + (scale - R(1));
}

// `width` numbers, with zeros behind them up to W
inline void load(R* __restrict to, const R* from, I width) {
  for (I j = 0; j < W; j++) to[j] = j < width ? from[j] : R(0);
}

// [width, N] as [N, W], with zeros behind each row; and back
inline void turn(R* __restrict to, const R* from, I width, I N) {
  for (I n = 0; n < N; n++)
    for (I j = 0; j < W; j++) to[n * W + j] = j < width ? from[j * N + n] : R(0);
}

inline void turn_back(R* __restrict to, const R* from, I width, I N) {
  for (I j = 0; j < width; j++)
    for (I n = 0; n < N; n++) to[j * N + n] = from[n * W + j];
}

// What a block of channels reads: rows of dt, u [T, E] and B, C [T, N], and A and 1 / A as [N, W]
struct Channels {
  const R *dt, *u, *B, *C;
  const uint8_t* start;
  Selective s;
  I j0, width;
  std::vector<R> A, inverse;

  void turn_to(const R* all, I first) {
    j0 = first;
    width = std::min(I(W), s.E - first);
    A.resize(s.N * W);
    inverse.resize(s.N * W);
    turn(A.data(), all + first * s.N, width, s.N);
    for (I i = 0; i < s.N * W; i++) inverse[i] = A[i] == R(0) ? R(0) : R(1) / A[i];
  }
};

// One slot: h_t from h_{t-1} (which may be the same array), with exp(dt A) - 1 kept if asked
template <bool hold, bool keep>
inline void advance(const Channels& c, const R* before, R* after, R* grown, const R* __restrict dt,
                    const R* __restrict u, const R* __restrict B) {
  R drive[W];
#pragma omp simd
  for (I j = 0; j < W; j++) drive[j] = hold ? u[j] : dt[j] * u[j];
  for (I n = 0; n < c.s.N; n++) {
    const R *__restrict A = c.A.data() + n * W, *__restrict inverse = c.inverse.data() + n * W;
    const R b = B[n];
#pragma omp simd
    for (I j = 0; j < W; j++) {
      const R g = growth(dt[j] * A[j]);
      const R in = hold ? g * inverse[j] * drive[j] : drive[j];
      after[n * W + j] = (g + R(1)) * before[n * W + j] + in * b;
      if (keep) grown[n * W + j] = g;
    }
  }
}

template <bool hold>
void channels_forward(const Channels& c, const R* h0, R* y, R* last, R* saved, I r) {
  const I T = c.s.T, E = c.s.E, N = c.s.N, every = c.s.every, pieces = (T + every - 1) / every;
  std::vector<R> state(N * W);
  R* h = state.data();
  R dt[W], u[W];
  turn(h, h0 + (r * E + c.j0) * N, c.width, N);
  for (I t = 0; t < T; t++) {
    const I row = r * T + t;
    if (saved && t % every == 0)
      for (I n = 0; n < N; n++)
        std::memcpy(saved + ((r * pieces + t / every) * N + n) * E + c.j0, h + n * W, c.width * sizeof(R));
    if (c.start[row]) std::memset(h, 0, N * W * sizeof(R));
    load(dt, c.dt + row * E + c.j0, c.width);
    load(u, c.u + row * E + c.j0, c.width);
    advance<hold, false>(c, h, h, nullptr, dt, u, c.B + row * N);
    const R* __restrict C = c.C + row * N;
    R read[W] = {};
    for (I n = 0; n < N; n++)
#pragma omp simd
      for (I j = 0; j < W; j++) read[j] += C[n] * h[n * W + j];
    std::memcpy(y + row * E + c.j0, read, c.width * sizeof(R));
  }
  turn_back(last + (r * E + c.j0) * N, h, c.width, N);
}

struct Gradients { R *dt, *u, *B, *C, *A, *h; };

template <bool hold>
void channels_backward(const Channels& c, const R* saved, const R* gy, const R* glast, const Gradients& d, I r) {
  const I T = c.s.T, E = c.s.E, N = c.s.N, NW = N * W, every = c.s.every, pieces = (T + every - 1) / every;
  const std::vector<R> zero(NW);
  std::vector<R> states((every + 1) * NW), growths(every * NW), work(2 * NW);  // h before a piece and after its slots
  R *dh = work.data(), *dA = dh + NW;
  R dt[W], u[W], g[W];
  turn(dh, glast + (r * E + c.j0) * N, c.width, N);
  for (I piece = pieces - 1; piece >= 0; piece--) {
    const I t0 = piece * every, length = std::min(every, T - t0);
    for (I n = 0; n < N; n++)
      load(states.data() + n * W, saved + ((r * pieces + piece) * N + n) * E + c.j0, c.width);
    for (I k = 0; k < length; k++) {
      const I row = r * T + t0 + k;
      load(dt, c.dt + row * E + c.j0, c.width);
      load(u, c.u + row * E + c.j0, c.width);
      R* h = states.data() + k * NW;
      advance<hold, true>(c, c.start[row] ? zero.data() : h, h + NW, growths.data() + k * NW, dt, u, c.B + row * N);
    }
    for (I k = length - 1; k >= 0; k--) {
      const I row = r * T + t0 + k;
      const R *h = states.data() + k * NW, *before = c.start[row] ? zero.data() : h, *after = h + NW;
      const R *B = c.B + row * N, *C = c.C + row * N, *grown = growths.data() + k * NW;
      load(dt, c.dt + row * E + c.j0, c.width);
      load(u, c.u + row * E + c.j0, c.width);
      load(g, gy + row * E + c.j0, c.width);
      R du[W] = {}, of_dt[W] = {};
      for (I n = 0; n < N; n++) {
        const R *__restrict A = c.A.data() + n * W, *__restrict inverse = c.inverse.data() + n * W;
        const R *__restrict hb = before + n * W, *__restrict ha = after + n * W, *__restrict e = grown + n * W;
        R *__restrict dhn = dh + n * W, *__restrict dAn = dA + n * W;
        const R b = B[n], q = C[n];
        R of_B = 0, of_C = 0;
#pragma omp simd reduction(+ : of_B, of_C)
        for (I j = 0; j < W; j++) {
          const R x = dhn[j] + g[j] * q, a = e[j] + R(1), width = hold ? e[j] * inverse[j] : dt[j];
          const R of_drive = x * b, of_width = of_drive * u[j];  // of d u and d, where h = a h + d u B
          const R of_growth = (x * hb[j] + (hold ? of_width * inverse[j] : R(0))) * a;
          of_B += x * width * u[j];
          of_C += g[j] * ha[j];
          du[j] += of_drive * width;
          of_dt[j] += of_growth * A[j] + (hold ? R(0) : of_width);
          dAn[j] += of_growth * dt[j] - (hold ? of_width * width * inverse[j] : R(0));
          dhn[j] = x * a;
        }
        d.B[row * N + n] += of_B;
        d.C[row * N + n] += of_C;
      }
      std::memcpy(d.dt + row * E + c.j0, of_dt, c.width * sizeof(R));
      std::memcpy(d.u + row * E + c.j0, du, c.width * sizeof(R));
      if (c.start[row]) std::memset(dh, 0, NW * sizeof(R));
    }
  }
  turn_back(d.h + (r * E + c.j0) * N, dh, c.width, N);
  turn_back(d.A + (r * E + c.j0) * N, dA, c.width, N);
}

void selective_forward(const R* dt, const R* u, const R* B, const R* C, const R* A, const R* h0, const uint8_t* start,
                       bool hold, R* y, R* last, R* saved, Selective s) {
  Channels c{dt, u, B, C, start, s, 0, 0, {}, {}};
  for (I j = 0; j < s.E; j += W) {
    c.turn_to(A, j);
    for (I r = s.r0; r < s.r1; r++)
      if (hold)
        channels_forward<true>(c, h0, y, last, saved, r);
      else
        channels_forward<false>(c, h0, y, last, saved, r);
  }
}

// dB and dC begin as zeros; dA [rows, E, N], one for each row
void selective_backward(const R* dt, const R* u, const R* B, const R* C, const R* A, const uint8_t* start, bool hold,
                        const R* saved, const R* gy, const R* glast, R* ddt, R* du, R* dB, R* dC, R* dA, R* dh0,
                        Selective s) {
  Channels c{dt, u, B, C, start, s, 0, 0, {}, {}};
  const Gradients d{ddt, du, dB, dC, dA, dh0};
  for (I j = 0; j < s.E; j += W) {
    c.turn_to(A, j);
    for (I r = s.r0; r < s.r1; r++)
      if (hold)
        channels_backward<true>(c, saved, gy, glast, d, r);
      else
        channels_backward<false>(c, saved, gy, glast, d, r);
  }
}

}  // namespace

extern "C" {
void selective_forward(const R* dt, const R* u, const R* B, const R* C, const R* A, const R* h0, const uint8_t* start,
                       I hold, R* y, R* last, R* saved, Work<Selective> parts) {
  parts([&](const Selective& s) { selective_forward(dt, u, B, C, A, h0, start, hold, y, last, saved, s); });
}
void selective_backward(const R* dt, const R* u, const R* B, const R* C, const R* A, const uint8_t* start, I hold,
                        const R* saved, const R* gy, const R* glast, R* ddt, R* du, R* dB, R* dC, R* dA, R* dh0,
                        Work<Selective> parts) {
  parts([&](const Selective& s) {
    selective_backward(dt, u, B, C, A, start, hold, saved, gy, glast, ddt, du, dB, dC, dA, dh0, s);
  });
}
}
