// Scans, their gradients, advantages, and the gates around FFM's scan.
//
// Sequential in time, vectorised over channels. A call works on rows [r0, r1) and channels [n0, n1), so that several
// threads share one scan. Complex numbers are interleaved pairs. `reverse` walks from the last slot to the first.
//
// The recurrence is h_t = a_t h_{t-1} + b_t; where start_t, h_{t-1} is taken as zero by selection. Backwards, with
// g_t = dL/dh_t + conj(a_{t+1}) g_{t+1}: dL/db_t = g_t, dL/da_t = g_t conj(h_{t-1}).

#include <memory>
#include <vector>

#include "common.h"
#include "team.h"

namespace {

const I BLOCK = 512;  // numbers of a running state, which stays in the first-level cache
const I AHEAD = 2;    // slots by which rows are fetched early: processors foresee a walk over rows badly
const I FLUSH = 64;   // slots after which single-precision sums move into double ones

struct Range { I T, N, reverse, r0, r1, n0, n1; };

inline I slot(const Range& s, I k) { return s.reverse ? s.T - 1 - k : k; }

template <class R>
inline void fetch(const R* p, I n) {
  for (I j = 0; j < n; j += I(64 / sizeof(R))) __builtin_prefetch(p + j);
}

// ---- real: a [rows, T, N] or [N] (constant), b and h [rows, T, N] ------------------------------------------------

template <class R>
void real_forward(const R* a, bool constant, const R* b, const R* h0, const uint8_t* start, R* h, Range s) {
  for (I r = s.r0; r < s.r1; r++)
    for (I m0 = s.n0; m0 < s.n1; m0 += BLOCK) {
      const I m = std::min(BLOCK, s.n1 - m0);
      const R* before = h0 + r * s.N + m0;
      for (I k = 0; k < s.T; k++) {
        const I t = slot(s, k), o = (r * s.T + t) * s.N + m0;
        const R* __restrict at = a + (constant ? m0 : o);
        const R* __restrict bt = b + o;
        R* __restrict ht = h + o;
        if (k + AHEAD < s.T) {
          const I p = (r * s.T + slot(s, k + AHEAD)) * s.N + m0;
          if (!constant) fetch(a + p, m);
          fetch(b + p, m);
        }
        if (start[r * s.T + t])
          std::memcpy(ht, bt, m * sizeof(R));
        else
          for (I n = 0; n < m; n++) ht[n] = at[n] * before[n] + bt[n];
        before = ht;
      }
    }
}

// One channel per row, such as returns: G rows side by side hide the latency of one chain.
template <class R, int G, bool constant>
void narrow_forward(const R* a, const R* b, const R* h0, const uint8_t* start, R* h, const Range& s, I r) {
  R c[G];
  for (int g = 0; g < G; g++) c[g] = h0[r + g];
  for (I k = 0; k < s.T; k++) {
    const I t = slot(s, k);
    for (int g = 0; g < G; g++) {
      const I o = (r + g) * s.T + t;
      const R x = start[o] ? R(0) : c[g];
      h[o] = c[g] = a[constant ? 0 : o] * x + b[o];
    }
  }
}

template <class R>
void real_backward(const R* a, const R* h, const R* h0, const uint8_t* start, const R* gh, R* ga, R* gb, R* gh0,
                   bool constant, Range s) {
  R c[BLOCK], sum[BLOCK];
  double total[BLOCK];
  for (I r = s.r0; r < s.r1; r++)
    for (I m0 = s.n0; m0 < s.n1; m0 += BLOCK) {
      const I m = std::min(BLOCK, s.n1 - m0);
      for (I n = 0; n < m; n++) { c[n] = sum[n] = 0; total[n] = 0; }
      for (I k = s.T - 1; k >= 0; k--) {
        const I t = slot(s, k), o = (r * s.T + t) * s.N + m0;
        const R* __restrict at = a + (constant ? m0 : o);
        const R* __restrict gt = gh + o;
        R* __restrict out = gb + o;
        if (k > AHEAD) {
          const I p = (r * s.T + slot(s, k - AHEAD)) * s.N + m0;
          if (!constant) fetch(a + p, m);
          fetch(gh + p, m);
          if (ga) fetch(h + (r * s.T + slot(s, k - AHEAD - 1)) * s.N + m0, m);
        }
        if (start[r * s.T + t]) {
          for (I n = 0; n < m; n++) { out[n] = gt[n] + c[n]; c[n] = 0; }
          if (ga && !constant) std::memset(ga + o, 0, m * sizeof(R));
        } else {
          const R* __restrict before = k ? h + (r * s.T + slot(s, k - 1)) * s.N + m0 : h0 + r * s.N + m0;
          if (!ga) {
            for (I n = 0; n < m; n++) { const R g = gt[n] + c[n]; out[n] = g; c[n] = g * at[n]; }
          } else if (constant) {
            for (I n = 0; n < m; n++) {
              const R g = gt[n] + c[n];
              out[n] = g; sum[n] += g * before[n]; c[n] = g * at[n];
            }
          } else {
            R* __restrict da = ga + o;
            for (I n = 0; n < m; n++) {
              const R g = gt[n] + c[n];
              out[n] = g; da[n] = g * before[n]; c[n] = g * at[n];
            }
          }
        }
        if (constant && k % FLUSH == 0)
          for (I n = 0; n < m; n++) { total[n] += sum[n]; sum[n] = 0; }
      }
      for (I n = 0; n < m; n++) gh0[r * s.N + m0 + n] = c[n];
      if (ga && constant)
        for (I n = 0; n < m; n++) ga[r * s.N + m0 + n] = R(total[n]);
    }
}

// ---- complex: as above on pairs. With `each` > 0 (and at most BLOCK / 2), b is real [rows, T, N / each], each entry
// driving `each` channels; n0 and n1 are then multiples of it ---------------------------------------------------------

template <class R>
void complex_forward(const R* a, bool constant, const R* b, I each, const R* h0, const uint8_t* start, R* h, Range s) {
  R u[BLOCK];
  const I width = each ? BLOCK / 2 / each * each : BLOCK / 2;
  for (I r = s.r0; r < s.r1; r++)
    for (I m0 = s.n0; m0 < s.n1; m0 += width) {
      const I m = std::min(width, s.n1 - m0);
      const R* before = h0 + 2 * (r * s.N + m0);
      for (I k = 0; k < s.T; k++) {
        const I t = slot(s, k), row = r * s.T + t, o = row * s.N + m0;
        const R* __restrict at = a + 2 * (constant ? m0 : o);
        R* __restrict ht = h + 2 * o;
        if (k + AHEAD < s.T) {
          const I p = 2 * ((r * s.T + slot(s, k + AHEAD)) * s.N + m0);
          if (!constant) fetch(a + p, 2 * m);
          if (!each) fetch(b + p, 2 * m);
        }
        const R* bt = b + 2 * o;
        if (each) {
          const R* drive = b + (row * s.N + m0) / each;
          for (I d = 0; d < m / each; d++)
            for (I e = 0; e < each; e++) {
              u[2 * (d * each + e)] = drive[d];
              u[2 * (d * each + e) + 1] = 0;
            }
          bt = u;
        }
        if (start[row])
          std::memcpy(ht, bt, 2 * m * sizeof(R));
        else
          for (I n = 0; n < m; n++) {
            const R ar = at[2 * n], ai = at[2 * n + 1], hr = before[2 * n], hi = before[2 * n + 1];
            ht[2 * n] = ar * hr - ai * hi + bt[2 * n];
            ht[2 * n + 1] = ar * hi + ai * hr + bt[2 * n + 1];
          }
        before = ht;
      }
    }
}

template <class R>
void complex_backward(const R* a, const R* h, const R* h0, const uint8_t* start, const R* gh, R* ga, R* gb, R* gh0,
                      bool constant, I each, Range s) {
  R c[BLOCK], g[BLOCK], sum[BLOCK];
  double total[BLOCK];
  const I width = each ? BLOCK / 2 / each * each : BLOCK / 2;
  for (I r = s.r0; r < s.r1; r++)
    for (I m0 = s.n0; m0 < s.n1; m0 += width) {
      const I m = std::min(width, s.n1 - m0);
      for (I n = 0; n < 2 * m; n++) { c[n] = sum[n] = 0; total[n] = 0; }
      for (I k = s.T - 1; k >= 0; k--) {
        const I t = slot(s, k), row = r * s.T + t, o = row * s.N + m0;
        const R* __restrict at = a + 2 * (constant ? m0 : o);
        const R* __restrict gt = gh + 2 * o;
        if (k > AHEAD) {
          const I p = 2 * ((r * s.T + slot(s, k - AHEAD)) * s.N + m0);
          if (!constant) fetch(a + p, 2 * m);
          fetch(gh + p, 2 * m);
          if (ga) fetch(h + 2 * ((r * s.T + slot(s, k - AHEAD - 1)) * s.N + m0), 2 * m);
        }
        for (I n = 0; n < 2 * m; n++) g[n] = gt[n] + c[n];
        if (each)
          for (I d = 0; d < m / each; d++) {
            R drive = 0;
            for (I e = 0; e < each; e++) drive += g[2 * (d * each + e)];
            gb[o / each + d] = drive;
          }
        else
          std::memcpy(gb + 2 * o, g, 2 * m * sizeof(R));
        if (start[row]) {
          for (I n = 0; n < 2 * m; n++) c[n] = 0;
          if (ga && !constant) std::memset(ga + 2 * o, 0, 2 * m * sizeof(R));
        } else {
          const R* __restrict before =
              k ? h + 2 * ((r * s.T + slot(s, k - 1)) * s.N + m0) : h0 + 2 * (r * s.N + m0);
          if (ga) {
            R* __restrict da = constant ? sum : ga + 2 * o;
            if (constant)
              for (I n = 0; n < m; n++) {
                const R gr = g[2 * n], gi = g[2 * n + 1], hr = before[2 * n], hi = before[2 * n + 1];
                da[2 * n] += gr * hr + gi * hi;
                da[2 * n + 1] += gi * hr - gr * hi;
              }
            else
              for (I n = 0; n < m; n++) {
                const R gr = g[2 * n], gi = g[2 * n + 1], hr = before[2 * n], hi = before[2 * n + 1];
                da[2 * n] = gr * hr + gi * hi;
                da[2 * n + 1] = gi * hr - gr * hi;
              }
          }
          for (I n = 0; n < m; n++) {
            const R ar = at[2 * n], ai = at[2 * n + 1], gr = g[2 * n], gi = g[2 * n + 1];
            c[2 * n] = ar * gr + ai * gi;
            c[2 * n + 1] = ar * gi - ai * gr;
          }
        }
        if (constant && k % FLUSH == 0)
          for (I n = 0; n < 2 * m; n++) { total[n] += sum[n]; sum[n] = 0; }
      }
      for (I n = 0; n < 2 * m; n++) gh0[2 * (r * s.N + m0) + n] = c[n];
      if (ga && constant)
        for (I n = 0; n < 2 * m; n++) ga[2 * (r * s.N + m0) + n] = R(total[n]);
    }
}

// ---- Stable Hadamard Memory ---------------------------------------------------------------------------------------

// C = 1 + tanh(x) and dC/dx = C (2 - C)
template <class R>
inline R calibration(R x) { return R(2) / (R(1) + fast_exp(R(-2) * x)); }

struct Shm { I T, H, every, r0, r1; };

// One slot: M = limit(M * C + v key^T), C_ij = 1 + tanh(theta_i c_j), with C kept if asked.
template <class R>
void shm_step(R* __restrict M, R* __restrict C, const R* theta, const R* __restrict c, const R* v,
              const R* __restrict key, R limit, I H) {
  for (I i = 0; i < H; i++) {
    const R th = theta[i], vi = v[i];
    R* __restrict Mi = M + i * H;
    R* __restrict Ci = C + i * H;
    for (I j = 0; j < H; j++) Ci[j] = calibration(th * c[j]);
    for (I j = 0; j < H; j++) Mi[j] = Mi[j] * Ci[j] + vi * key[j];
    if (limit > 0)
      for (I j = 0; j < H; j++) Mi[j] = std::min(std::max(Mi[j], -limit), limit);
  }
}

template <class R>
void shm_forward(const R* theta, const R* c, const R* v, const R* key, const R* q, const R* M0, const uint8_t* start,
                 R limit, R* y, R* last, R* saved, Shm s) {
  const I H = s.H, HH = H * H;
  std::vector<R> work(2 * HH);
  R *M = work.data(), *C = M + HH;
  for (I r = s.r0; r < s.r1; r++) {
    std::memcpy(M, M0 + r * HH, HH * sizeof(R));
    for (I t = 0; t < s.T; t++) {
      if (saved && t % s.every == 0)
        std::memcpy(saved + (r * ((s.T + s.every - 1) / s.every) + t / s.every) * HH, M, HH * sizeof(R));
      const I row = r * s.T + t, o = row * H;
      if (start[row]) std::memset(M, 0, HH * sizeof(R));
      shm_step(M, C, theta + o, c + o, v + o, key + o, limit, H);
      for (I i = 0; i < H; i++) {
        R dot = 0;
        const R *__restrict Mi = M + i * H, *__restrict qt = q + o;
#pragma omp simd reduction(+ : dot)
        for (I j = 0; j < H; j++) dot += Mi[j] * qt[j];
        y[o + i] = dot;
      }
    }
    std::memcpy(last + r * HH, M, HH * sizeof(R));
  }
}

template <class R>
void shm_backward(const R* theta, const R* c, const R* v, const R* key, const R* q, const uint8_t* start, R limit,
                  const R* saved, const R* gy, const R* glast, R* dtheta, R* dc, R* dv, R* dkey, R* dq, R* dM0, Shm s) {
  const I H = s.H, HH = H * H, pieces = (s.T + s.every - 1) / s.every;
  std::vector<R> Ms(2 * s.every * HH), Cs(s.every * HH);  // M before and after slot k of a piece, C of slot k
  for (I r = s.r0; r < s.r1; r++) {
    R* __restrict dM = dM0 + r * HH;
    std::memcpy(dM, glast + r * HH, HH * sizeof(R));
    for (I piece = pieces - 1; piece >= 0; piece--) {
      const I t0 = piece * s.every, length = std::min(s.every, s.T - t0);
      const R* left = saved + (r * pieces + piece) * HH;
      for (I k = 0; k < length; k++) {
        const I row = r * s.T + t0 + k, o = row * H;
        R *before = Ms.data() + 2 * k * HH, *after = before + HH;
        if (start[row])
          std::memset(before, 0, HH * sizeof(R));
        else
          std::memcpy(before, left, HH * sizeof(R));
        std::memcpy(after, before, HH * sizeof(R));
        left = after;
        shm_step(after, Cs.data() + k * HH, theta + o, c + o, v + o, key + o, limit, H);
      }
      for (I k = length - 1; k >= 0; k--) {
        const I row = r * s.T + t0 + k, o = row * H;
        const R *before = Ms.data() + 2 * k * HH, *after = before + HH, *C = Cs.data() + k * HH;
        const R *__restrict ct = c + o, *__restrict kt = key + o, *__restrict qt = q + o;
        R *__restrict dct = dc + o, *__restrict dkt = dkey + o, *__restrict dqt = dq + o;
        for (I j = 0; j < H; j++) dct[j] = dkt[j] = dqt[j] = 0;
        for (I i = 0; i < H; i++) {
          const R g = gy[o + i], vi = v[o + i], th = theta[o + i];
          R *__restrict dMi = dM + i * H;
          const R *__restrict Mb = before + i * H, *__restrict Ma = after + i * H, *__restrict Ci = C + i * H;
          R sum_v = 0, sum_theta = 0;
          for (I j = 0; j < H; j++) { dqt[j] += g * Ma[j]; dMi[j] += g * qt[j]; }
          if (limit > 0)
            for (I j = 0; j < H; j++) dMi[j] = std::fabs(Ma[j]) < limit ? dMi[j] : R(0);
#pragma omp simd reduction(+ : sum_v, sum_theta)
          for (I j = 0; j < H; j++) {
            const R d = dMi[j], dx = d * Mb[j] * Ci[j] * (R(2) - Ci[j]);
            sum_v += d * kt[j];
            sum_theta += dx * ct[j];
            dkt[j] += d * vi;
            dct[j] += dx * th;
            dMi[j] = d * Ci[j];
          }
          dv[o + i] = sum_v;
          dtheta[o + i] = sum_theta;
        }
        if (start[row]) std::memset(dM, 0, HH * sizeof(R));
      }
    }
  }
}

// ---- generalised advantages ----------------------------------------------------------------------------------------
// One pass for the differences x_t and decays d_t (zero where nothing follows), in vectors; one for A_t = x_t + d_t A_{t+1},
// of 8 sequences side by side, which hides the latency of each.

struct Rows { I T, r0, r1; };

template <class R>
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
template <class R>
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
template <class R>
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

template <class R>
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

// ---- the gates around FFM's scan ----------------------------------------------------------------------------------
// Rows of p are the projections value [m] | skip [H] | gate_in [m] | gate_out [H]; dp is laid out likewise.

struct Gates { I m, H, r0, r1; };

// Which row of p slot r has: `which` says so; null: one of its own each
inline I row_of(const I* which, I r) { return which ? which[r] : r; }

// Parts [p0, p1) of all rows. If slots share rows of p, each part adds up the gradients of these in `size` numbers of its
// own, so that sums do not depend on threads.
struct Parts {
  I m, H, p0, p1, rows, parts, size;
  I begin(I part) const { return rows * part / parts; }
};

template <class R>
void ffm_in_forward(const R* p, const I* which, R* u, Gates s) {
  const I m = s.m, width = 2 * (m + s.H);
  for (I r = s.r0; r < s.r1; r++) {
    const R *__restrict value = p + row_of(which, r) * width, *__restrict gate = value + m + s.H;
    R* __restrict ur = u + r * m;
    for (I j = 0; j < m; j++) ur[j] = value[j] * sigmoid(gate[j]);
  }
}

// One slot: h = gamma * state + u, or u where start; gamma [m c] and state [rows, m c] are complex
template <class R>
void ffm_step(const R* p, const I* which, const R* gamma, const R* state, const uint8_t* start, R* h, I c, Gates s) {
  const I m = s.m, width = 2 * (m + s.H), N = m * c;
  std::vector<R> drive(2 * N);  // imaginary parts stay zero
  for (I r = s.r0; r < s.r1; r++) {
    const R *value = p + row_of(which, r) * width, *gate = value + m + s.H, *before = state + 2 * r * N;
    R *after = h + 2 * r * N, *u = drive.data();
    for (I j = 0; j < m; j++) u[2 * j * c] = value[j] * sigmoid(gate[j]);
    for (I j = 0; j < m; j++)
      for (I k = 1; k < c; k++) u[2 * (j * c + k)] = u[2 * j * c];
    if (start[r]) {
      std::memcpy(after, u, 2 * N * sizeof(R));
      continue;
    }
#pragma omp simd
    for (I n = 0; n < N; n++) {
      after[2 * n] = gamma[2 * n] * before[2 * n] - gamma[2 * n + 1] * before[2 * n + 1] + u[2 * n];
      after[2 * n + 1] = gamma[2 * n] * before[2 * n + 1] + gamma[2 * n + 1] * before[2 * n] + u[2 * n + 1];
    }
  }
}

template <class R, bool shared>
void ffm_in_backward(const R* p, const I* which, const R* du, R* dp, Parts s) {
  const I m = s.m, width = 2 * (m + s.H);
  for (I part = s.p0; part < s.p1; part++)
    for (I r = s.begin(part); r < s.begin(part + 1); r++) {
      const I at = row_of(which, r) * width;
      const R *__restrict value = p + at, *__restrict gate = value + m + s.H, *__restrict d = du + r * m;
      R *__restrict dvalue = dp + part * s.size + at, *__restrict dgate = dvalue + m + s.H;
      for (I j = 0; j < m; j++) {
        const R g = sigmoid(gate[j]);
        dvalue[j] = (shared ? dvalue[j] : R(0)) + d[j] * g;
        dgate[j] = (shared ? dgate[j] : R(0)) + d[j] * value[j] * g * (R(1) - g);
      }
    }
}

// mean and 1 / standard deviation of a row, as layer norm takes them
template <class R>
inline void moments(const R* __restrict z, I H, R& mean, R& scale) {
  R sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (I j = 0; j < H; j++) sum += z[j];
  mean = sum / R(H);
  const R mu = mean;
#pragma omp simd reduction(+ : squares)
  for (I j = 0; j < H; j++) squares += (z[j] - mu) * (z[j] - mu);
  scale = R(1) / std::sqrt(squares / R(H) + R(1e-5));
}

// y = LN(z) g + skip (1 - g), g = sigmoid(gate_out)
template <class R>
void ffm_out_forward(const R* p, const I* which, const R* z, R* y, Gates s) {
  const I m = s.m, H = s.H, width = 2 * (m + H);
  for (I r = s.r0; r < s.r1; r++) {
    const R *__restrict skip = p + row_of(which, r) * width + m, *__restrict gate = skip + H + m;
    const R* __restrict zr = z + r * H;
    R* __restrict yr = y + r * H;
    R mean, scale;
    moments(zr, H, mean, scale);
    for (I j = 0; j < H; j++) yr[j] = skip[j] + sigmoid(gate[j]) * ((zr[j] - mean) * scale - skip[j]);
  }
}

template <class R, bool shared>
void ffm_out_backward(const R* p, const I* which, const R* z, const R* dy, R* dz, R* dp, Parts s) {
  const I m = s.m, H = s.H, width = 2 * (m + H);
  for (I part = s.p0; part < s.p1; part++)
    for (I r = s.begin(part); r < s.begin(part + 1); r++) {
      const I at = row_of(which, r) * width + m;
      const R *__restrict skip = p + at, *__restrict gate = skip + H + m, *__restrict zr = z + r * H;
      const R* __restrict d = dy + r * H;
      R *__restrict dskip = dp + part * s.size + at, *__restrict dgate = dskip + H + m, *__restrict dzr = dz + r * H;
      R mean, scale, sum = 0, product = 0;
      moments(zr, H, mean, scale);
#pragma omp simd reduction(+ : sum, product)
      for (I j = 0; j < H; j++) {
        const R g = sigmoid(gate[j]), normal = (zr[j] - mean) * scale, dn = d[j] * g;
        dskip[j] = (shared ? dskip[j] : R(0)) + d[j] - dn;
        dgate[j] = (shared ? dgate[j] : R(0)) + dn * (R(1) - g) * (normal - skip[j]);
        dzr[j] = dn;
        sum += dn;
        product += dn * normal;
      }
      sum /= R(H);
      product /= R(H);
      for (I j = 0; j < H; j++) dzr[j] = scale * (dzr[j] - sum - (zr[j] - mean) * scale * product);
    }
}

template <class R, bool constant>
void narrow(const R* a, const R* b, const R* h0, const uint8_t* start, R* h, const Range& s) {
  I r = s.r0;
  for (; r + 8 <= s.r1; r += 8) narrow_forward<R, 8, constant>(a, b, h0, start, h, s, r);
  for (; r < s.r1; r++) narrow_forward<R, 1, constant>(a, b, h0, start, h, s, r);
}

}  // namespace

#define KERNELS(R, X)                                                                                                  \
  void real_forward_##X(const R* a, I constant, const R* b, I, const R* h0, const uint8_t* start, R* h,                \
                        Work<Range> parts) {                                                                           \
    parts([&](const Range& s) {                                                                                        \
      if (s.N > 1)                                                                                                     \
        real_forward<R>(a, constant, b, h0, start, h, s);                                                              \
      else if (constant)                                                                                               \
        narrow<R, true>(a, b, h0, start, h, s);                                                                        \
      else                                                                                                             \
        narrow<R, false>(a, b, h0, start, h, s);                                                                       \
    });                                                                                                                \
  }                                                                                                                    \
  void real_backward_##X(const R* a, const R* h, const R* h0, const uint8_t* start, const R* gh, R* ga, R* gb, R* gh0, \
                         I constant, I, Work<Range> parts) {                                                           \
    parts([&](const Range& s) { real_backward<R>(a, h, h0, start, gh, ga, gb, gh0, constant, s); });                   \
  }                                                                                                                    \
  void complex_forward_##X(const R* a, I constant, const R* b, I each, const R* h0, const uint8_t* start, R* h,        \
                           Work<Range> parts) {                                                                        \
    parts([&](const Range& s) { complex_forward<R>(a, constant, b, each, h0, start, h, s); });                         \
  }                                                                                                                    \
  void complex_backward_##X(const R* a, const R* h, const R* h0, const uint8_t* start, const R* gh, R* ga, R* gb,      \
                            R* gh0, I constant, I each, Work<Range> parts) {                                           \
    parts([&](const Range& s) { complex_backward<R>(a, h, h0, start, gh, ga, gb, gh0, constant, each, s); });          \
  }                                                                                                                    \
  void shm_forward_##X(const R* theta, const R* c, const R* v, const R* key, const R* q, const R* M0,                  \
                       const uint8_t* start, R limit, R* y, R* last, R* saved, Work<Shm> parts) {                      \
    parts([&](const Shm& s) { shm_forward<R>(theta, c, v, key, q, M0, start, limit, y, last, saved, s); });            \
  }                                                                                                                    \
  void shm_backward_##X(const R* theta, const R* c, const R* v, const R* key, const R* q, const uint8_t* start,        \
                        R limit, const R* saved, const R* gy, const R* glast, R* dtheta, R* dc, R* dv, R* dkey, R* dq, \
                        R* dM0, Work<Shm> parts) {                                                                     \
    parts([&](const Shm& s) {                                                                                          \
      shm_backward<R>(theta, c, v, key, q, start, limit, saved, gy, glast, dtheta, dc, dv, dkey, dq, dM0, s);          \
    });                                                                                                                \
  }                                                                                                                    \
  void advantages_##X(const R* reward, const R* value, const uint8_t* terminated, const uint8_t* mask, R gamma,        \
                      R decay, R* A, Work<Rows> parts) {                                                               \
    parts([&](const Rows& s) { if (s.T > 0) advantages<R>(reward, value, terminated, mask, gamma, decay, A, s); });    \
  }                                                                                                                    \
  void ffm_in_forward_##X(const R* p, const I* which, R* u, Work<Gates> parts) {                                       \
    parts([&](const Gates& s) { ffm_in_forward<R>(p, which, u, s); });                                                 \
  }                                                                                                                    \
  void ffm_step_##X(const R* p, const I* which, const R* gamma, const R* state, const uint8_t* start, R* h, I c,       \
                    Work<Gates> parts) {                                                                               \
    parts([&](const Gates& s) { ffm_step<R>(p, which, gamma, state, start, h, c, s); });                               \
  }                                                                                                                    \
  void ffm_in_backward_##X(const R* p, const I* which, const R* du, R* dp, Work<Parts> parts) {                        \
    parts([&](const Parts& s) {                                                                                        \
      which ? ffm_in_backward<R, true>(p, which, du, dp, s) : ffm_in_backward<R, false>(p, which, du, dp, s);          \
    });                                                                                                                \
  }                                                                                                                    \
  void ffm_out_forward_##X(const R* p, const I* which, const R* z, R* y, Work<Gates> parts) {                          \
    parts([&](const Gates& s) { ffm_out_forward<R>(p, which, z, y, s); });                                             \
  }                                                                                                                    \
  void ffm_out_backward_##X(const R* p, const I* which, const R* z, const R* dy, R* dz, R* dp, Work<Parts> parts) {    \
    parts([&](const Parts& s) {                                                                                        \
      which ? ffm_out_backward<R, true>(p, which, z, dy, dz, dp, s)                                                    \
            : ffm_out_backward<R, false>(p, which, z, dy, dz, dp, s);                                                  \
    });                                                                                                                \
  }

extern "C" {
KERNELS(float, float32)
KERNELS(double, float64)
}
