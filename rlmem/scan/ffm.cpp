// The gates around FFM's scan.
//
// Rows of p are the projections value [m] | skip [H] | gate_in [m] | gate_out [H]; dp is laid out likewise.

#include <vector>

#include "common.h"
#include "team.h"

namespace {

struct Gates { I m, H, r0, r1; };

// Which row of p slot r has: `which` says so; null: one of its own each
inline I row_of(const I* which, I r) { return which ? which[r] : r; }

// Parts [p0, p1) of all rows. If slots share rows of p, each part adds up the gradients of these in `size` numbers of its
// own, so that sums do not depend on threads.
struct Parts {
  I m, H, p0, p1, rows, parts, size;
  I begin(I part) const { return rows * part / parts; }
};

void ffm_in_forward(const R* p, const I* which, R* u, Gates s) {
  const I m = s.m, width = 2 * (m + s.H);
  for (I r = s.r0; r < s.r1; r++) {
    const R *__restrict value = p + row_of(which, r) * width, *__restrict gate = value + m + s.H;
    R* __restrict ur = u + r * m;
    for (I j = 0; j < m; j++) ur[j] = value[j] * sigmoid(gate[j]);
  }
}

// One slot: h = gamma * state + u, or u where start; gamma [m c] and state [rows, m c] are complex
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

template <bool shared>
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

template <bool shared>
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

}  // namespace

extern "C" {
void ffm_in_forward(const R* p, const I* which, R* u, Work<Gates> parts) {
  parts([&](const Gates& s) { ffm_in_forward(p, which, u, s); });
}
void ffm_step(const R* p, const I* which, const R* gamma, const R* state, const uint8_t* start, R* h, I c,
              Work<Gates> parts) {
  parts([&](const Gates& s) { ffm_step(p, which, gamma, state, start, h, c, s); });
}
void ffm_in_backward(const R* p, const I* which, const R* du, R* dp, Work<Parts> parts) {
  parts([&](const Parts& s) {
    which ? ffm_in_backward<true>(p, which, du, dp, s) : ffm_in_backward<false>(p, which, du, dp, s);
  });
}
void ffm_out_forward(const R* p, const I* which, const R* z, R* y, Work<Gates> parts) {
  parts([&](const Gates& s) { ffm_out_forward(p, which, z, y, s); });
}
void ffm_out_backward(const R* p, const I* which, const R* z, const R* dy, R* dz, R* dp, Work<Parts> parts) {
  parts([&](const Parts& s) {
    which ? ffm_out_backward<true>(p, which, z, dy, dz, dp, s)
          : ffm_out_backward<false>(p, which, z, dy, dz, dp, s);
  });
}
}
