// Matrix products, and matrices in the panels that they are multiplied from.

#include "gemm.h"
#include "team.h"

namespace {

// C [n, m] = A [n, k] W^T + b [m] for W [m, k]; b may be null. `panels` hold W^T if they are not null.
struct Task {
  Matrix<const R> A, W;
  const R *panels, *b;
  R* C;
  I n, k, m, across, along;  // threads share `across` parts of the columns and `along` parts of the rows

  void part(I p) const {
    constexpr I count = Wide::count;
    const I all = (m + count - 1) / count, column = p % across, row = p / across;  // panels are not divided
    const I m0 = all * column / across * count, m1 = std::min(m, all * (column + 1) / across * count);
    const I n0 = n * row / along, n1 = n * (row + 1) / along;
    const Matrix<const R> left = A.from(n0, 0), right = {W.at + m0 * W.row, W.column, W.row};
    const Matrix<R> to = Matrix<R>{C, m, 1}.from(n0, m0);
    const R* begin = b ? b + m0 : b;
    if (panels)
      multiply(n1 - n0, k, m1 - m0, left, panels + m0 * k, begin, 0, to);
    else
      Product(k, m1 - m0)(n1 - n0, k, m1 - m0, left, right, begin, 0, to);
  }

  // A thread packs the columns of W that it multiplies with, so columns are shared first, if six panels are left to each.
  void run(I threads, Team team) {
    across = std::max<I>(1, std::min<I>(threads, m / (6 * Wide::count)));
    along = std::max<I>(1, std::min<I>(threads / across, n));
    share(across * along, threads, team, [this](I p) { part(p); });
  }
};

struct Sizes { I m, k; };

}  // namespace

extern "C" {
void product(const R* A, I row, I column, const R* W, I row_of_W, I column_of_W, const R* panels, const R* b, R* C, I n,
             I k, I m, I threads, Team team) {
  Task task{{A, row, column}, {W, row_of_W, column_of_W}, panels, b, C, n, k, m, 1, 1};
  task.run(threads, team);
}
void panels(const R* W, I row, I column, R* P, Work<Sizes> parts) {
  parts([&](const Sizes& s) { pack({W, column, row}, s.k, s.m, P); });
}
I lanes() { return Wide::count; }
}
