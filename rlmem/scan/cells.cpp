// Gated cells over packed episodes: step t reads the first sizes[t] episodes, and sizes do not grow.
//
// S slots of E episodes of H units. A step multiplies with the recurrent weights, which come in panels (gemm.h); all else
// of it is one pass over its slots.

#include "gemm.h"
#include "team.h"

namespace {

struct Cells { I T, H; };

// C [n, M] = A [n, K] W + begin, for W [K, M] in panels. Rows of A and of C begin `of_A` and `of_C` numbers apart; begin is
// C or, for zeros, null.
inline void multiply(const R* A, I of_A, const R* W, const R* begin, R* C, I of_C, I n, I K, I M) {
  ::multiply(n, K, M, {A, of_A, 1}, W, begin, of_C, {C, of_C, 1});
}

inline void multiply(const R* A, const R* W, const R* begin, R* C, I n, I K, I M) {
  multiply(A, K, W, begin, C, M, n, K, M);
}

// ---- GRU: r, z = sigmoid(wx + uh), n = tanh(wx_n + r uh_n), h' = n + z (h - n), with uh = U h + bias -----------------

// U: panels of U^T [H, 3H]; gates [S, 3H] comes as wx and keeps r, z, n; uh_n [S, H]
// keeps its part of U h + bias; work [E, 3H]
void gru_forward(R* gates, const R* h0, const R* U, const R* bias, const I* sizes, R* uh_n, R* h_all, R* work,
                 Cells s) {
  const I H = s.H;
  const R* h = h0;
  for (I t = 0, first = 0; t < s.T; first += sizes[t++]) {
    const I n = sizes[t];
    multiply(h, U, nullptr, work, n, H, 3 * H);
    for (I e = 0; e < n; e++) {
      const R *u = work + e * 3 * H, *before = h + e * H;
      R *g = gates + (first + e) * 3 * H, *un = uh_n + (first + e) * H, *after = h_all + (first + e) * H;
#pragma omp simd
      for (I j = 0; j < H; j++) {
        const R r = sigmoid(g[j] + (u[j] + bias[j])), z = sigmoid(g[H + j] + (u[H + j] + bias[H + j]));
        const R q = u[2 * H + j] + bias[2 * H + j], c = hyperbolic_tangent(g[2 * H + j] + r * q);
        g[j] = r;
        g[H + j] = z;
        g[2 * H + j] = c;
        un[j] = q;
        after[j] = c + z * (before[j] - c);
      }
    }
    h = h_all + first * H;
  }
}

// dwx and duh [S, 3H], the gradients of wx and of U h + bias; dh [E, H] ends as that of h0 and begins as zeros
void gru_backward(const R* gates, const R* uh_n, const R* h_all, const R* h0, const R* U, const I* sizes,
                  const R* dh_all, R* dwx, R* duh, R* dh, I S, Cells s) {
  const I H = s.H;
  for (I t = s.T - 1, first = S; t >= 0; t--) {
    const I n = sizes[t];
    first -= n;
    const R* h = t ? h_all + (first - sizes[t - 1]) * H : h0;
    for (I e = 0; e < n; e++) {
      const R *g = gates + (first + e) * 3 * H, *un = uh_n + (first + e) * H, *before = h + e * H;
      const R* dy = dh_all + (first + e) * H;
      R *dw = dwx + (first + e) * 3 * H, *du = duh + (first + e) * 3 * H, *d = dh + e * H;
#pragma omp simd
      for (I j = 0; j < H; j++) {
        const R r = g[j], z = g[H + j], c = g[2 * H + j], x = d[j] + dy[j];
        const R dc = x * (R(1) - z) * (R(1) - c * c);
        const R dr = dc * un[j] * r * (R(1) - r), dz = x * (before[j] - c) * z * (R(1) - z);
        dw[j] = du[j] = dr;
        dw[H + j] = du[H + j] = dz;
        dw[2 * H + j] = dc;
        du[2 * H + j] = dc * r;
        d[j] = x * z;
      }
    }
    multiply(duh + first * 3 * H, U, dh, dh, n, 3 * H, H);
  }
}

// ---- BRC: r = tanh(wx_r + uh_r), c = sigmoid(wx_c + uh_c), n = tanh(wx_n + (1 + r) h), h' = n + c (h - n), uh = U h ----

// U: panels of U^T [H, 2H], or [2H] if it acts elementwise; gates [S, 2H] and candidate [S, H] come as wx and keep r, c
// and n; work [E, 2H]
void brc_forward(R* gates, R* candidate, const R* h0, const R* U, const I* sizes, R* h_all, R* work, bool elementwise,
                 Cells s) {
  const I H = s.H;
  const R* h = h0;
  for (I t = 0, first = 0; t < s.T; first += sizes[t++]) {
    const I n = sizes[t];
    if (!elementwise) multiply(h, U, nullptr, work, n, H, 2 * H);
    for (I e = 0; e < n; e++) {
      const R* before = h + e * H;
      R *g = gates + (first + e) * 2 * H, *x = candidate + (first + e) * H, *after = h_all + (first + e) * H;
      R* u = work + e * 2 * H;
      if (elementwise)
        for (I j = 0; j < H; j++) {
          u[j] = U[j] * before[j];
          u[H + j] = U[H + j] * before[j];
        }
#pragma omp simd
      for (I j = 0; j < H; j++) {
        const R r = hyperbolic_tangent(g[j] + u[j]), c = sigmoid(g[H + j] + u[H + j]);
        const R next = hyperbolic_tangent(x[j] + (R(1) + r) * before[j]);
        g[j] = r;
        g[H + j] = c;
        x[j] = next;
        after[j] = next + c * (before[j] - next);
      }
    }
    h = h_all + first * H;
  }
}

// dgates [S, 2H] and dcandidate [S, H], the gradients of wx; dh [E, H] ends as that of h0 and begins as zeros
void brc_backward(const R* gates, const R* candidate, const R* h_all, const R* h0, const R* U, const I* sizes,
                  const R* dh_all, R* dgates, R* dcandidate, R* dh, bool elementwise, I S, Cells s) {
  const I H = s.H;
  for (I t = s.T - 1, first = S; t >= 0; t--) {
    const I n = sizes[t];
    first -= n;
    const R* h = t ? h_all + (first - sizes[t - 1]) * H : h0;
    for (I e = 0; e < n; e++) {
      const R *g = gates + (first + e) * 2 * H, *x = candidate + (first + e) * H, *before = h + e * H;
      const R* dy = dh_all + (first + e) * H;
      R *dg = dgates + (first + e) * 2 * H, *dx = dcandidate + (first + e) * H, *d = dh + e * H;
#pragma omp simd
      for (I j = 0; j < H; j++) {
        const R r = g[j], c = g[H + j], next = x[j], y = d[j] + dy[j], dn = y * (R(1) - c) * (R(1) - next * next);
        dg[j] = dn * before[j] * (R(1) - r * r);
        dg[H + j] = y * (before[j] - next) * c * (R(1) - c);
        dx[j] = dn;
        d[j] = y * c + dn * (R(1) + r);
      }
      if (elementwise)
        for (I j = 0; j < H; j++) d[j] += U[j] * dg[j] + U[H + j] * dg[H + j];
    }
    if (!elementwise) multiply(dgates + first * 2 * H, U, dh, dh, n, 2 * H, H);
  }
}

// ---- LSTM: i, f, o = sigmoid(.), g = tanh(.) of wx + U h; c' = f c + i g, h' = o tanh(c') ----------------------------

// U: panels of U^T [H, 4H]; gates [S, 4H] comes as wx and keeps i, f, g, o
void lstm_forward(R* gates, const R* h0, const R* c0, const R* U, const I* sizes, R* h_all, R* c_all, Cells s) {
  const I H = s.H;
  const R *h = h0, *c = c0;
  for (I t = 0, first = 0; t < s.T; first += sizes[t++]) {
    const I n = sizes[t];
    R* wx = gates + first * 4 * H;
    multiply(h, U, wx, wx, n, H, 4 * H);
    for (I e = 0; e < n; e++) {
      R *g = gates + (first + e) * 4 * H, *hn = h_all + (first + e) * H, *cn = c_all + (first + e) * H;
      const R* before = c + e * H;
#pragma omp simd
      for (I j = 0; j < H; j++) {
        const R in = sigmoid(g[j]), forget = sigmoid(g[H + j]), cell = hyperbolic_tangent(g[2 * H + j]);
        const R out = sigmoid(g[3 * H + j]), next = forget * before[j] + in * cell;
        g[j] = in;
        g[H + j] = forget;
        g[2 * H + j] = cell;
        g[3 * H + j] = out;
        cn[j] = next;
        hn[j] = out * hyperbolic_tangent(next);
      }
    }
    h = h_all + first * H;
    c = c_all + first * H;
  }
}

// dgates [S, 4H], the gradient of wx; dh and dc [E, H] end as those of h0 and c0 and begin as zeros
void lstm_backward(const R* gates, const R* c_all, const R* c0, const R* U, const I* sizes, const R* dh_all,
                   const R* dc_all, R* dgates, R* dh, R* dc, I S, Cells s) {
  const I H = s.H;
  for (I t = s.T - 1, first = S; t >= 0; t--) {
    const I n = sizes[t];
    first -= n;
    const R* c = t ? c_all + (first - sizes[t - 1]) * H : c0;
    for (I e = 0; e < n; e++) {
      const R *g = gates + (first + e) * 4 * H, *before = c + e * H, *after = c_all + (first + e) * H;
      const R *dy = dh_all + (first + e) * H, *dlast = dc_all + (first + e) * H;
      R *dg = dgates + (first + e) * 4 * H, *d = dh + e * H, *dcell = dc + e * H;
#pragma omp simd
      for (I j = 0; j < H; j++) {
        const R in = g[j], forget = g[H + j], cell = g[2 * H + j], out = g[3 * H + j];
        const R squashed = hyperbolic_tangent(after[j]), x = d[j] + dy[j];
        const R y = dcell[j] + dlast[j] + x * out * (R(1) - squashed * squashed);
        dg[j] = y * cell * in * (R(1) - in);
        dg[H + j] = y * before[j] * forget * (R(1) - forget);
        dg[2 * H + j] = y * in * (R(1) - cell * cell);
        dg[3 * H + j] = x * squashed * out * (R(1) - out);
        dcell[j] = y * forget;
      }
    }
    multiply(dgates + first * 4 * H, U, nullptr, dh, n, 4 * H, H);
  }
}

// ---- sLSTM: i = exp(.), f, o = sigmoid(.), z = tanh(.) of wx + U h, in heads of P = H / heads units -------------------
//
// c' = f c + i z, n' = f n + i, h' = o c' / n', with c and n kept as c exp(-m) and n exp(-m), m' = max(log f + m, log i).
// n = 0 is the state of an episode that has read nothing: then m' = log i. The four gates of a head lie side by side.

// U: panels of U^T [P, 4P] of each head; gates [S, 4H] comes as wx and keeps i and f (both with the stabiliser), z, o;
// closing [S, H] keeps 1 - sigmoid of f's
void slstm_forward(R* gates, const R* h0, const R* c0, const R* n0, const R* m0, const R* U, const I* sizes, R* h_all,
                   R* c_all, R* n_all, R* m_all, R* closing, I heads, Cells s) {
  const I H = s.H, P = H / heads;
  const R *h = h0, *c = c0, *n = n0, *m = m0;
  for (I t = 0, first = 0; t < s.T; first += sizes[t++]) {
    const I rows = sizes[t];
    for (I k = 0; k < heads; k++) {
      R* wx = gates + first * 4 * H + k * 4 * P;
      multiply(h + k * P, H, U + k * panels_size(P, 4 * P), wx, wx, 4 * H, rows, P, 4 * P);
    }
    for (I e = 0; e < rows; e++)
      for (I k = 0; k < heads; k++) {
        const I from = e * H + k * P, to = (first + e) * H + k * P;
        R *g = gates + 4 * to, *hn = h_all + to, *cn = c_all + to, *nn = n_all + to, *mn = m_all + to, *shut = closing + to;
        const R *cb = c + from, *nb = n + from, *mb = m + from;
#pragma omp simd
        for (I j = 0; j < P; j++) {
          const R a = g[P + j], u = fast_exp(-std::fabs(a)), log_in = g[j];
          const R reached = (a < R(0) ? a : R(0)) - log_of_one_plus(u) + mb[j], ahead = log_in - reached;
          const R less = fast_exp(-std::fabs(ahead));
          const bool fresh = nb[j] == R(0), leads = fresh || ahead > R(0);
          const R in = leads ? fast_exp(log_in - log_in) : less, forget = fresh ? R(0) : (ahead > R(0) ? less : R(1));
          const R cell = hyperbolic_tangent(g[2 * P + j]), out = sigmoid(g[3 * P + j]);
          const R c_next = forget * cb[j] + in * cell, n_next = forget * nb[j] + in;
          shut[j] = (a < R(0) ? R(1) : u) / (R(1) + u);
          g[j] = in;
          g[P + j] = forget;
          g[2 * P + j] = cell;
          g[3 * P + j] = out;
          cn[j] = c_next;
          nn[j] = n_next;
          mn[j] = leads ? log_in : reached;
          hn[j] = out * c_next / n_next;
        }
      }
    const I at = first * H;
    h = h_all + at;
    c = c_all + at;
    n = n_all + at;
    m = m_all + at;
  }
}

// dgates [S, 4H], the gradient of wx; dh, dc, dn [E, H] end as those of h0, c0, n0 and begin as zeros; dm [E, H], that
// of m0. No gradient flows through the stabiliser, on which nothing depends.
void slstm_backward(const R* gates, const R* c_all, const R* n_all, const R* closing, const R* c0, const R* n0,
                    const R* U, const I* sizes, const R* dh_all, const R* dc_all, const R* dn_all, R* dgates, R* dh,
                    R* dc, R* dn, R* dm, I heads, I S, Cells s) {
  const I H = s.H, P = H / heads;
  for (I t = s.T - 1, first = S; t >= 0; t--) {
    const I rows = sizes[t];
    first -= rows;
    const R *c = t ? c_all + (first - sizes[t - 1]) * H : c0, *n = t ? n_all + (first - sizes[t - 1]) * H : n0;
    for (I e = 0; e < rows; e++)
      for (I k = 0; k < heads; k++) {
        const I from = e * H + k * P, to = (first + e) * H + k * P;
        const R *g = gates + 4 * to, *cb = c + from, *nb = n + from, *ca = c_all + to, *na = n_all + to;
        const R *shut = closing + to, *dy = dh_all + to, *dc_last = dc_all + to, *dn_last = dn_all + to;
        R *dg = dgates + 4 * to, *d = dh + from, *dcell = dc + from, *dnorm = dn + from, *dm0 = dm + from;
#pragma omp simd
        for (I j = 0; j < P; j++) {
          const R in = g[j], forget = g[P + j], cell = g[2 * P + j], out = g[3 * P + j];
          const R x = d[j] + dy[j], read = ca[j] / na[j], share = x * out / na[j];
          const R y = dcell[j] + dc_last[j] + share, q = dnorm[j] + dn_last[j] - share * read;
          const R kept = (y * cb[j] + q * nb[j]) * forget;
          dg[j] = (y * cell + q) * in;
          dg[P + j] = kept * shut[j];
          dg[2 * P + j] = y * in * (R(1) - cell * cell);
          dg[3 * P + j] = x * read * out * (R(1) - out);
          dm0[j] = kept;
          dcell[j] = y * forget;
          dnorm[j] = q * forget;
        }
      }
    for (I k = 0; k < heads; k++)
      multiply(dgates + first * 4 * H + k * 4 * P, 4 * H, U + k * panels_size(4 * P, P), nullptr, dh + k * P, H, rows,
                  4 * P, P);
  }
}

}  // namespace

extern "C" {
void gru_forward(R* gates, const R* h0, const R* U, const R* bias, const I* sizes, R* uh_n, R* h_all, R* work,
                 Work<Cells> parts) {
  parts([&](const Cells& s) { gru_forward(gates, h0, U, bias, sizes, uh_n, h_all, work, s); });
}
void gru_backward(const R* gates, const R* uh_n, const R* h_all, const R* h0, const R* U, const I* sizes,
                  const R* dh_all, R* dwx, R* duh, R* dh, I S, Work<Cells> parts) {
  parts([&](const Cells& s) { gru_backward(gates, uh_n, h_all, h0, U, sizes, dh_all, dwx, duh, dh, S, s); });
}
void brc_forward(R* gates, R* candidate, const R* h0, const R* U, const I* sizes, R* h_all, R* work, I elementwise,
                 Work<Cells> parts) {
  parts([&](const Cells& s) { brc_forward(gates, candidate, h0, U, sizes, h_all, work, elementwise, s); });
}
void brc_backward(const R* gates, const R* candidate, const R* h_all, const R* h0, const R* U, const I* sizes,
                  const R* dh_all, R* dgates, R* dcandidate, R* dh, I elementwise, I S, Work<Cells> parts) {
  parts([&](const Cells& s) {
    brc_backward(gates, candidate, h_all, h0, U, sizes, dh_all, dgates, dcandidate, dh, elementwise, S, s);
  });
}
void lstm_forward(R* gates, const R* h0, const R* c0, const R* U, const I* sizes, R* h_all, R* c_all,
                  Work<Cells> parts) {
  parts([&](const Cells& s) { lstm_forward(gates, h0, c0, U, sizes, h_all, c_all, s); });
}
void lstm_backward(const R* gates, const R* c_all, const R* c0, const R* U, const I* sizes, const R* dh_all,
                   const R* dc_all, R* dgates, R* dh, R* dc, I S, Work<Cells> parts) {
  parts([&](const Cells& s) {
    lstm_backward(gates, c_all, c0, U, sizes, dh_all, dc_all, dgates, dh, dc, S, s);
  });
}
void slstm_forward(R* gates, const R* h0, const R* c0, const R* n0, const R* m0, const R* U, const I* sizes, R* h_all,
                   R* c_all, R* n_all, R* m_all, R* closing, I heads, Work<Cells> parts) {
  parts([&](const Cells& s) {
    slstm_forward(gates, h0, c0, n0, m0, U, sizes, h_all, c_all, n_all, m_all, closing, heads, s);
  });
}
void slstm_backward(const R* gates, const R* c_all, const R* n_all, const R* closing, const R* c0, const R* n0,
                    const R* U, const I* sizes, const R* dh_all, const R* dc_all, const R* dn_all, R* dgates, R* dh,
                    R* dc, R* dn, R* dm, I heads, I S, Work<Cells> parts) {
  parts([&](const Cells& s) {
    slstm_backward(gates, c_all, n_all, closing, c0, n0, U, sizes, dh_all, dc_all, dn_all, dgates, dh, dc, dn, dm,
                      heads, S, s);
  });
}
}
