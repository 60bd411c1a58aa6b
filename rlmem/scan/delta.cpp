// The gated delta rule: S' = f_t S_{t-1}, S_t = S' + beta_t k_t (v_t - S'^T k_t)^T, y_t = S_t^T q_t.
//
// S [K, V]. A column of S follows from the numbers of its own value alone, so W columns at a time are walked through all
// slots: they stay in the first-level cache, and sums over K stay in registers. On the way back, S is stored every few
// slots, and the slots between are walked again.

#include <vector>

#include "common.h"
#include "team.h"

namespace {

struct Delta { I T, K, V, every, r0, r1; };

struct Walk {
  const R *f, *beta, *v, *k, *q;
  const uint8_t* start;
  Delta s;
};

// `width` numbers, with zeros behind them up to W
template <int W>
inline void load(R* __restrict to, const R* from, I width) {
  for (I j = 0; j < W; j++) to[j] = j < width ? from[j] : R(0);
}

// One slot: S becomes S_t, u = beta (v - S'^T k), error = v - S'^T k
template <int W>
inline void step(R* __restrict S, R f, R beta, const R* __restrict k, const R* __restrict v, R* __restrict u,
                 R* __restrict error, I K) {
  R p[W] = {};
  for (I i = 0; i < K; i++) {
    R* __restrict Si = S + i * W;
#pragma omp simd
    for (I j = 0; j < W; j++) {
      Si[j] *= f;
      p[j] += k[i] * Si[j];
    }
  }
#pragma omp simd
  for (I j = 0; j < W; j++) {
    error[j] = v[j] - p[j];
    u[j] = beta * error[j];
  }
  for (I i = 0; i < K; i++) {
    R* __restrict Si = S + i * W;
#pragma omp simd
    for (I j = 0; j < W; j++) Si[j] += k[i] * u[j];
  }
}

// Columns j0 to j0 + width of one row
template <int W>
void columns_forward(const Walk& w, const R* S0, R* y, R* last, R* saved, I r, I j0, I width) {
  const I T = w.s.T, K = w.s.K, V = w.s.V, pieces = (T + w.s.every - 1) / w.s.every;
  std::vector<R> work(K * W);
  R* S = work.data();
  R v[W], u[W], error[W];
  for (I i = 0; i < K; i++) load<W>(S + i * W, S0 + (r * K + i) * V + j0, width);
  for (I t = 0; t < T; t++) {
    const I row = r * T + t;
    if (saved && t % w.s.every == 0)
      for (I i = 0; i < K; i++)
        std::memcpy(saved + ((r * pieces + t / w.s.every) * K + i) * V + j0, S + i * W, width * sizeof(R));
    if (w.start[row]) std::memset(S, 0, K * W * sizeof(R));
    load<W>(v, w.v + row * V + j0, width);
    step<W>(S, w.f[row], w.beta[row], w.k + row * K, v, u, error, K);
    const R* __restrict q = w.q + row * K;
    R read[W] = {};
    for (I i = 0; i < K; i++) {
      const R* __restrict Si = S + i * W;
#pragma omp simd
      for (I j = 0; j < W; j++) read[j] += q[i] * Si[j];
    }
    std::memcpy(y + row * V + j0, read, width * sizeof(R));
  }
  for (I i = 0; i < K; i++) std::memcpy(last + (r * K + i) * V + j0, S + i * W, width * sizeof(R));
}

struct Gradients { R *f, *beta, *v, *k, *q, *S; };

template <int W>
void columns_backward(const Walk& w, const R* saved, const R* gy, const R* glast, const Gradients& d, I r, I j0,
                      I width) {
  const I T = w.s.T, K = w.s.K, V = w.s.V, every = w.s.every, pieces = (T + every - 1) / every, KW = K * W;
  std::vector<R> before(every * KW), written(2 * every * W), work(2 * KW);  // S before each slot; u and error of each
  R *S = work.data(), *dS = S + KW;
  R v[W], g[W];
  for (I i = 0; i < K; i++) load<W>(dS + i * W, glast + (r * K + i) * V + j0, width);
  for (I piece = pieces - 1; piece >= 0; piece--) {
    const I t0 = piece * every, length = std::min(every, T - t0);
    for (I i = 0; i < K; i++) load<W>(S + i * W, saved + ((r * pieces + piece) * K + i) * V + j0, width);
    for (I n = 0; n < length; n++) {
      const I row = r * T + t0 + n;
      if (w.start[row]) std::memset(S, 0, KW * sizeof(R));
      std::memcpy(before.data() + n * KW, S, KW * sizeof(R));
      load<W>(v, w.v + row * V + j0, width);
      R* u = written.data() + 2 * n * W;
      step<W>(S, w.f[row], w.beta[row], w.k + row * K, v, u, u + W, K);
    }
    for (I n = length - 1; n >= 0; n--) {
      const I row = r * T + t0 + n;
      const R f = w.f[row], beta = w.beta[row], *k = w.k + row * K, *q = w.q + row * K;
      const R *__restrict B = before.data() + n * KW, *__restrict u = written.data() + 2 * n * W, *error = u + W;
      R *dk = d.k + row * K, *dq = d.q + row * K;
      load<W>(g, gy + row * V + j0, width);
      R du[W] = {}, of_f[W] = {}, dp[W];
      for (I i = 0; i < K; i++) {
        const R* __restrict Bi = B + i * W;
        R* __restrict dSi = dS + i * W;
        const R ki = k[i], qi = q[i];
        R of_q = 0;
#pragma omp simd reduction(+ : of_q)
        for (I j = 0; j < W; j++) {
          of_q += (f * Bi[j] + ki * u[j]) * g[j];
          dSi[j] += qi * g[j];
          du[j] += ki * dSi[j];
        }
        dq[i] += of_q;
      }
      R of_beta = 0;
      for (I j = 0; j < W; j++) {
        of_beta += du[j] * error[j];
        dp[j] = -beta * du[j];
      }
      for (I j = 0; j < width; j++) d.v[row * V + j0 + j] = -dp[j];
      d.beta[row] += of_beta;
      for (I i = 0; i < K; i++) {
        const R* __restrict Bi = B + i * W;
        R* __restrict dSi = dS + i * W;
        const R ki = k[i];
        R of_k = 0;
#pragma omp simd reduction(+ : of_k)
        for (I j = 0; j < W; j++) {
          of_k += dSi[j] * u[j] + f * Bi[j] * dp[j];
          const R decayed = dSi[j] + ki * dp[j];
          of_f[j] += decayed * Bi[j];
          dSi[j] = f * decayed;
        }
        dk[i] += of_k;
      }
      R sum = 0;
      for (I j = 0; j < W; j++) sum += of_f[j];
      d.f[row] += sum;
      if (w.start[row]) std::memset(dS, 0, KW * sizeof(R));
    }
  }
  for (I i = 0; i < K; i++) std::memcpy(d.S + (r * K + i) * V + j0, dS + i * W, width * sizeof(R));
}

// Calls `wide`, `half` or `narrow` for 64, 32 or up to 16 columns, until all are done
template <class Wide, class Half, class Narrow>
inline void over_columns(I V, Wide wide, Half half, Narrow narrow) {
  for (I j = 0; j < V;) {
    const I left = V - j, width = left >= 64 ? 64 : left >= 32 ? 32 : std::min(left, I(16));
    if (width == 64) wide(j, width);
    else if (width == 32) half(j, width);
    else narrow(j, width);
    j += width;
  }
}

void delta_forward(const R* f, const R* beta, const R* v, const R* k, const R* q, const R* S0, const uint8_t* start,
                   R* y, R* last, R* saved, Delta s) {
  const Walk w{f, beta, v, k, q, start, s};
  for (I r = s.r0; r < s.r1; r++)
    over_columns(
        s.V, [&](I j, I width) { columns_forward<64>(w, S0, y, last, saved, r, j, width); },
        [&](I j, I width) { columns_forward<32>(w, S0, y, last, saved, r, j, width); },
        [&](I j, I width) { columns_forward<16>(w, S0, y, last, saved, r, j, width); });
}

// df, dbeta, dk and dq begin as zeros
void delta_backward(const R* f, const R* beta, const R* v, const R* k, const R* q, const uint8_t* start, const R* saved,
                    const R* gy, const R* glast, R* df, R* dbeta, R* dv, R* dk, R* dq, R* dS0, Delta s) {
  const Walk w{f, beta, v, k, q, start, s};
  const Gradients d{df, dbeta, dv, dk, dq, dS0};
  for (I r = s.r0; r < s.r1; r++)
    over_columns(
        s.V, [&](I j, I width) { columns_backward<64>(w, saved, gy, glast, d, r, j, width); },
        [&](I j, I width) { columns_backward<32>(w, saved, gy, glast, d, r, j, width); },
        [&](I j, I width) { columns_backward<16>(w, saved, gy, glast, d, r, j, width); });
}

}  // namespace

extern "C" {
void delta_forward(const R* f, const R* beta, const R* v, const R* k, const R* q, const R* S0, const uint8_t* start,
                   R* y, R* last, R* saved, Work<Delta> parts) {
  parts([&](const Delta& s) { delta_forward(f, beta, v, k, q, S0, start, y, last, saved, s); });
}
void delta_backward(const R* f, const R* beta, const R* v, const R* k, const R* q, const uint8_t* start, const R* saved,
                    const R* gy, const R* glast, R* df, R* dbeta, R* dv, R* dk, R* dq, R* dS0, Work<Delta> parts) {
  parts([&](const Delta& s) {
    delta_backward(f, beta, v, k, q, start, saved, gy, glast, df, dbeta, dv, dk, dq, dS0, s);
  });
}
}
