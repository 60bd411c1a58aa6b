// Stable Hadamard Memory: M_t = limit(M_{t-1} * C_t + v_t key_t^T), C_ij = 1 + tanh(theta_i c_j), read as M_t q_t.

#include <vector>

#include "common.h"
#include "team.h"

namespace {

// C = 1 + tanh(x) and dC/dx = C (2 - C)
inline R calibration(R x) { return R(2) / (R(1) + fast_exp(R(-2) * x)); }

struct Shm { I T, H, every, r0, r1; };

// One slot: M = limit(M * C + v key^T), C_ij = 1 + tanh(theta_i c_j), with C kept if asked.
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

}  // namespace

extern "C" {
void shm_forward(const R* theta, const R* c, const R* v, const R* key, const R* q, const R* M0, const uint8_t* start,
                 R limit, R* y, R* last, R* saved, Work<Shm> parts) {
  parts([&](const Shm& s) { shm_forward(theta, c, v, key, q, M0, start, limit, y, last, saved, s); });
}
void shm_backward(const R* theta, const R* c, const R* v, const R* key, const R* q, const uint8_t* start, R limit,
                  const R* saved, const R* gy, const R* glast, R* dtheta, R* dc, R* dv, R* dkey, R* dq, R* dM0,
                  Work<Shm> parts) {
  parts([&](const Shm& s) {
    shm_backward(theta, c, v, key, q, start, limit, saved, gy, glast, dtheta, dc, dv, dkey, dq, dM0, s);
  });
}
}
