// Matrix products, and matrices in the panels that they are multiplied from.

#include "gemm.h"

namespace {

// Rows [n0, n1) and columns [m0, m1) of C [n, m] = A [n, k] W^T + b [m] for W [m, k]; b may be null. `panels` hold W^T if
// they are not null, and m0 is where one of them begins.
template <class R>
void product(Matrix<const R> A, Matrix<const R> W, const R* panels, const R* b, R* C, I k, I m, I n0, I n1, I m0, I m1) {
  const Matrix<const R> left = A.from(n0, 0), right = {W.at + m0 * W.row, W.column, W.row};
  const Matrix<R> to = Matrix<R>{C, m, 1}.from(n0, m0);
  const R* begin = b ? b + m0 : b;
  if (panels)
    multiply(n1 - n0, k, m1 - m0, left, panels + m0 * k, begin, 0, to);
  else
    Product<R>(k, m1 - m0)(n1 - n0, k, m1 - m0, left, right, begin, 0, to);
}

struct Sizes { I m, k; };

}  // namespace

#define KERNELS(R, X)                                                                                                  \
  void product_##X(const R* A, I row, I column, const R* W, I row_of_W, I column_of_W, const R* panels, const R* b,    \
                   R* C, I k, I m, I n0, I n1, I m0, I m1) {                                                           \
    product<R>({A, row, column}, {W, row_of_W, column_of_W}, panels, b, C, k, m, n0, n1, m0, m1);                      \
  }                                                                                                                    \
  void panels_##X(const R* W, I row, I column, R* P, Sizes s) { pack<R>({W, column, row}, s.k, s.m, P); }              \
  I lanes_##X() { return Wide<R>::count; }

extern "C" {
KERNELS(float, float32)
KERNELS(double, float64)
}
