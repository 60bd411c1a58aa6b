// Perceptrons: products and activations by turns, of a few rows at a time, so that what is between them stays in the cache.

#include <vector>

#include "gemm.h"
#include "team.h"

namespace {

enum Activation : I { LEAKY_RELU, RELU, TANH };

const I ROWS = DEPTH;  // at once

// y [n, m] = activation(x W^T + b) of x [n, k]
struct Layer {
  const R* W;
  const R* panels;  // of W^T forwards, of W backwards; null where it is yet to be packed
  const R* b;
  R* y;             // null forwards where it is not kept, but for the last
  I at;             // where its gradients, dW [m, k] and db [m], begin among those of all layers
  I k, m;
  I active;         // whether it has an activation
};

// Layers whose weights are all in panels
struct Packed {
  std::vector<Layer> layers;
  std::vector<std::unique_ptr<R[]>> own;

  Packed(const Layer* given, I count, bool forwards) : layers(given, given + count) {
    for (Layer& layer : layers) {
      if (layer.panels) continue;
      const I k = layer.k, m = layer.m;
      own.emplace_back(new R[forwards ? panels_size(k, m) : panels_size(m, k)]);
      layer.panels = own.back().get();
      if (forwards) pack({layer.W, 1, k}, k, m, own.back().get());
      else pack({layer.W, k, 1}, m, k, own.back().get());
    }
  }
};

void activate(R* __restrict y, I n, I kind) {
  if (kind == TANH)
    for (I i = 0; i < n; i++) y[i] = hyperbolic_tangent(y[i]);
  else if (kind == RELU)
    for (I i = 0; i < n; i++) y[i] = y[i] < 0 ? R(0) : y[i];  // a NaN stays one
  else
    for (I i = 0; i < n; i++) y[i] = y[i] > 0 ? y[i] : y[i] * R(0.01);
}

// to = dy * activation', which its value y tells
void differentiate(const R* __restrict y, const R* dy, R* to, I n, I kind) {
  if (kind == TANH)
    for (I i = 0; i < n; i++) to[i] = dy[i] * (R(1) - y[i] * y[i]);
  else if (kind == RELU)
    for (I i = 0; i < n; i++) to[i] = y[i] <= 0 ? R(0) : dy[i];
  else
    for (I i = 0; i < n; i++) to[i] = y[i] > 0 ? dy[i] : dy[i] * R(0.01);
}

struct Perceptron {
  const R* x;
  const Layer* layers;
  I count, kind, n, widest;

  Perceptron(const R* x, const Layer* layers, I count, I kind, I n)
      : x(x), layers(layers), count(count), kind(kind), n(n), widest(0) {
    for (I l = 0; l < count; l++) widest = std::max({widest, layers[l].k, layers[l].m});
  }

  void forward(I begin, I end) const {
    const std::unique_ptr<R[]> between(new R[2 * std::min(ROWS, end - begin) * widest]);
    for (I r = begin; r < end; r += ROWS) {
      const I rows = std::min(ROWS, end - r);
      const R* in = x + r * layers[0].k;
      for (I l = 0; l < count; l++) {
        const Layer& layer = layers[l];
        R* out = layer.y ? layer.y + r * layer.m : between.get() + l % 2 * rows * widest;
        multiply(rows, layer.k, layer.m, {in, layer.k, 1}, layer.panels, layer.b, 0, {out, layer.m, 1});
        if (layer.active) activate(out, rows * layer.m, kind);
        in = out;
      }
    }
  }

  // The gradients of rows [begin, end): dx [n, k] unless it is null, to which they are added if asked; and those of all
  // weights, summed up in `sums`, unless it is.
  void backward(I begin, I end, const R* dy, R* dx, bool adds, R* sums) const {
    const Product times(ROWS, widest);
    const std::unique_ptr<R[]> work(new R[(2 * ROWS + 1) * widest]);
    R *spare = work.get(), *other = spare + ROWS * widest, *column = other + ROWS * widest;
    for (I r = begin; r < end; r += ROWS) {
      const I rows = std::min(ROWS, end - r);
      const R* g = dy + r * layers[count - 1].m;
      for (I l = count - 1; l >= 0; l--) {
        const Layer& layer = layers[l];
        const I k = layer.k, m = layer.m;
        if (layer.active) {
          differentiate(layer.y + r * m, g, spare, rows * m, kind);
          g = spare;
        }
        if (sums) {
          R *dW = sums + layer.at, *db = dW + m * k;
          const R* in = l ? layers[l - 1].y + r * k : x + r * k;
          const R* so_far = r == begin ? nullptr : dW;
          times(m, rows, k, {g, 1, m}, {in, k, 1}, so_far, k, {dW, k, 1});
          std::fill(column, column + m, R(0));
          for (I i = 0; i < rows; i++)
            for (I j = 0; j < m; j++) column[j] += g[i * m + j];
          for (I j = 0; j < m; j++) db[j] = so_far ? db[j] + column[j] : column[j];
        }
        if (l || dx) {
          R* to = l ? other : dx + r * k;
          multiply(rows, m, k, {g, m, 1}, layer.panels, !l && adds ? to : nullptr, k, {to, k, 1});
          g = to;
          std::swap(spare, other);
        }
      }
    }
  }
};

}  // namespace

extern "C" {
void perceptron_forward(const R* x, const Layer* layers, I count, I kind, I n, I threads, Team team) {
  const Packed packed(layers, count, true);
  const Perceptron all(x, packed.layers.data(), count, kind, n);
  const I rows = std::max<I>(1, std::min(ROWS, (n + threads - 1) / threads));
  share((n + rows - 1) / rows, threads, team, [&](I p) { all.forward(p * rows, std::min(n, (p + 1) * rows)); });
}
/* `parts` groups of rows have sums of their own, `size` numbers each, so that these do not depend on threads */
void perceptron_backward(const R* x, const Layer* layers, I count, I kind, I n, I threads, Team team, const R* dy,
                         R* dx, I adds, R* sums, I size, I parts) {
  const Packed packed(layers, count, false);
  const Perceptron all(x, packed.layers.data(), count, kind, n);
  const I blocks = (n + ROWS - 1) / ROWS;
  share(parts, threads, team, [&](I p) {
    const I begin = blocks * p / parts * ROWS, end = std::min(n, blocks * (p + 1) / parts * ROWS);
    R* own = sums ? sums + p * size : sums;
    if (own && begin >= end) std::fill(own, own + size, R(0));
    all.backward(begin, end, dy, dx, adds, own);
  });
}
}
