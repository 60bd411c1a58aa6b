// The linear recurrence and its gradients.
//
// Sequential in time, vectorised over channels. A call works on rows [r0, r1) and channels [n0, n1), so that several
// threads share one scan. Complex numbers are interleaved pairs. `reverse` walks from the last slot to the first.
//
// The recurrence is h_t = a_t h_{t-1} + b_t; where start_t, h_{t-1} is taken as zero by selection. Backwards, with
// g_t = dL/dh_t + conj(a_{t+1}) g_{t+1}: dL/db_t = g_t, dL/da_t = g_t conj(h_{t-1}).

#include "common.h"
#include "team.h"

namespace {

const I BLOCK = 512;  // numbers of a running state, which stays in the first-level cache
const I AHEAD = 2;    // slots by which rows are fetched early: processors foresee a walk over rows badly
const I FLUSH = 64;   // slots after which single-precision sums move into double ones

struct Range { I T, N, reverse, r0, r1, n0, n1; };

inline I slot(const Range& s, I k) { return s.reverse ? s.T - 1 - k : k; }

inline void fetch(const R* p, I n) {
  for (I j = 0; j < n; j += I(64 / sizeof(R))) __builtin_prefetch(p + j);
}

// ---- real: a [rows, T, N] or [N] (constant), b and h [rows, T, N] ------------------------------------------------

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
template <int G, bool constant>
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

template <bool constant>
void narrow(const R* a, const R* b, const R* h0, const uint8_t* start, R* h, const Range& s) {
  I r = s.r0;
  for (; r + 8 <= s.r1; r += 8) narrow_forward<8, constant>(a, b, h0, start, h, s, r);
  for (; r < s.r1; r++) narrow_forward<1, constant>(a, b, h0, start, h, s, r);
}

}  // namespace

extern "C" {
void real_forward(const R* a, I constant, const R* b, I, const R* h0, const uint8_t* start, R* h, Work<Range> parts) {
  parts([&](const Range& s) {
    if (s.N > 1)
      real_forward(a, constant, b, h0, start, h, s);
    else if (constant)
      narrow<true>(a, b, h0, start, h, s);
    else
      narrow<false>(a, b, h0, start, h, s);
  });
}
void real_backward(const R* a, const R* h, const R* h0, const uint8_t* start, const R* gh, R* ga, R* gb, R* gh0,
                   I constant, I, Work<Range> parts) {
  parts([&](const Range& s) { real_backward(a, h, h0, start, gh, ga, gb, gh0, constant, s); });
}
void complex_forward(const R* a, I constant, const R* b, I each, const R* h0, const uint8_t* start, R* h,
                     Work<Range> parts) {
  parts([&](const Range& s) { complex_forward(a, constant, b, each, h0, start, h, s); });
}
void complex_backward(const R* a, const R* h, const R* h0, const uint8_t* start, const R* gh, R* ga, R* gb, R* gh0,
                      I constant, I each, Work<Range> parts) {
  parts([&](const Range& s) { complex_backward(a, h, h0, start, gh, ga, gb, gh0, constant, each, s); });
}
}
