// Causal convolution of every channel over the last K slots of its episode: y_t = b + sum_j w_j v_{t-K+j}, j = 1 ... K.

#include "common.h"
#include "team.h"

namespace {

struct Taps { I T, E, K, r0, r1; };

// Calls `tap(t, j, s)` for every slot t of row r and every tap j on a slot s of its episode; slots s < 0 are those
// before the row, which no slot after a start reads.
template <class F>
inline void over_taps(const uint8_t* start, const Taps& c, I r, F tap) {
  I first = -(c.K - 1);
  for (I t = 0; t < c.T; t++) {
    if (start[r * c.T + t]) first = t;
    for (I j = std::max(I(0), first - (t - c.K + 1)); j < c.K; j++) tap(t, j, t - c.K + 1 + j);
  }
}

// v, y [rows, T, E], before [rows, K - 1, E], w [K, E], b [E]
void convolution_forward(const R* v, const R* before, const uint8_t* start, const R* w, const R* b, R* y, Taps c) {
  const I E = c.E;
  for (I r = c.r0; r < c.r1; r++) {
    for (I t = 0; t < c.T; t++) std::memcpy(y + (r * c.T + t) * E, b, E * sizeof(R));
    over_taps(start, c, r, [&](I t, I j, I s) {
      const R *__restrict x = s < 0 ? before + (r * (c.K - 1) + c.K - 1 + s) * E : v + (r * c.T + s) * E;
      const R* __restrict wj = w + j * E;
      R* __restrict yt = y + (r * c.T + t) * E;
      for (I e = 0; e < E; e++) yt[e] += wj[e] * x[e];
    });
  }
}

// dv and dbefore begin as zeros, as do dw [rows, K, E] and db [rows, E], one for each row
void convolution_backward(const R* v, const R* before, const uint8_t* start, const R* w, const R* dy, R* dv, R* dbefore,
                          R* dw, R* db, Taps c) {
  const I E = c.E;
  for (I r = c.r0; r < c.r1; r++)
    over_taps(start, c, r, [&](I t, I j, I s) {
      const I at = s < 0 ? (r * (c.K - 1) + c.K - 1 + s) * E : (r * c.T + s) * E;
      const R *__restrict x = (s < 0 ? before : v) + at, *__restrict wj = w + j * E;
      const R* __restrict g = dy + (r * c.T + t) * E;
      R *__restrict dx = (s < 0 ? dbefore : dv) + at, *__restrict dwj = dw + (r * c.K + j) * E;
      for (I e = 0; e < E; e++) {
        dx[e] += wj[e] * g[e];
        dwj[e] += g[e] * x[e];
      }
      if (j == c.K - 1) {  // once for each slot
        R* __restrict dbr = db + r * E;
        for (I e = 0; e < E; e++) dbr[e] += g[e];
      }
    });
}

}  // namespace

extern "C" {
void convolution_forward(const R* v, const R* before, const uint8_t* start, const R* w, const R* b, R* y,
                         Work<Taps> parts) {
  parts([&](const Taps& c) { convolution_forward(v, before, start, w, b, y, c); });
}
void convolution_backward(const R* v, const R* before, const uint8_t* start, const R* w, const R* dy, R* dv, R* dbefore,
                          R* dw, R* db, Work<Taps> parts) {
  parts([&](const Taps& c) { convolution_backward(v, before, start, w, dy, dv, dbefore, dw, db, c); });
}
}
