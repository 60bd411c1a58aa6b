"""The kernel of matrix products: right in every layout, and a row of a result the same whatever rows are beside it."""

import json
from itertools import product as combinations
from pathlib import Path

import pytest
import torch
from test_reliability import killed_at, run

from rlmem.scan import native
from rlmem.scan.matmul import FEW, LITTLE, constant_weights, gradient_of_weight, linear

KERNEL = pytest.mark.skipif(bool(native.missing()), reason=str(native.missing()))
SHAPES = [(1, 1, 1), (5, 3, 7), (9, 17, 48), (17, 0, 5), (37, 1100, 100), (140, 600, 97)]
"""Rows, numbers in a sum and columns: around the sizes of tiles, panels, chunks and depths."""


def matrix(rows, columns, dtype, turned):
    x = torch.randn(rows, columns, dtype=dtype)
    return x.t().contiguous().t() if turned else x


@KERNEL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_right_in_every_layout(shape, dtype):
    torch.manual_seed(0)
    (n, k, m), bound = shape, 1e-4 if dtype == torch.float32 else 1e-12
    for turned_x, turned_W, bias in combinations([False, True], repeat=3):
        x, W = matrix(n, k, dtype, turned_x), matrix(m, k, dtype, turned_W)
        b = torch.randn(m, dtype=dtype) if bias else None
        truth = x.double() @ W.double().t() + (0 if b is None else b)
        found = native.product(x, W, b)
        torch.testing.assert_close(found.double(), truth, rtol=bound, atol=bound)
        assert torch.equal(native.product(x, W, b, native.packed(W)), found)
        apart = native.product(x[:, ::2], W[:, ::2], b)  # neither rows nor columns side by side
        torch.testing.assert_close(apart, native.product(x[:, ::2].contiguous(), W[:, ::2].contiguous(), b))


@KERNEL
def test_threads_share_a_product_without_changing_it(monkeypatch):
    x, W, b = torch.randn(70, 300), torch.randn(130, 300), torch.randn(130)
    alone = native.product(x, W, b)
    for threads in (2, 3, 7):
        monkeypatch.setattr(native, "_threads", lambda work, threads=threads: threads)
        assert torch.equal(native.product(x, W, b), alone)
        assert torch.equal(native.product(x, W, b, native.packed(W)), alone)


@KERNEL
def test_a_row_does_not_depend_on_the_rows_beside_it():
    """What slots give together, as in training, is what each gave alone, as in acting: not a bit differs."""
    torch.manual_seed(0)
    x, layer = torch.randn(300, 70), torch.nn.Linear(70, 50)
    with torch.no_grad(), constant_weights():
        together = linear(x, layer.weight, layer.bias)
        for rows in (1, 2, 7, 64, 299):
            assert torch.equal(linear(x[:rows], layer.weight, layer.bias), together[:rows])


@pytest.mark.parametrize("rows", [FEW, FEW + 1, LITTLE // (24 * 40) + 1])
def test_values_and_gradients_are_those_of_torch(rows):
    torch.manual_seed(0)
    x, W, b = torch.randn(rows, 24), torch.randn(40, 24), torch.randn(40)
    truth = gradients(x.double(), W.double(), b.double())
    for ours, theirs in zip(gradients(x, W, b), truth, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(gradient_of_weight(x, x), x.t() @ x)


def gradients(*leaves):
    """The product, its gradients, and one of a gradient."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    y = linear(*leaves)
    found = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
    (second,) = torch.autograd.grad(found[0].square().sum(), leaves[1])
    return y.detach(), *(x.detach() for x in found), second


@KERNEL
def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^x \[2, 3\], W \[5, 4\] and b None do not fit$"):
        native.product(torch.randn(2, 3), torch.randn(5, 4))
    with pytest.raises(ValueError, match=r"b \[1\] do not fit$"):
        native.product(torch.randn(2, 4), torch.randn(5, 4), torch.randn(1))
    with pytest.raises(RuntimeError, match="shapes"):
        linear(torch.randn(99, 3), torch.randn(5, 4))


def test_a_resumed_run_says_what_is_another(in_tmp, capsys):
    with killed_at(4):
        run("on_exists=resume")
    file, text = Path("run/run.json"), Path("run/run.json").read_text()
    run("on_exists=resume", "total_steps=400")
    assert "resumed at step 368\n" in capsys.readouterr().out
    file.write_text(json.dumps(json.loads(text) | {"versions": {"torch": "1\x1b[31m\n"}, "machine": 3}))
    run("on_exists=resume", "total_steps=500")
    said = f"(torch: 1[31m before, {torch.__version__} now)"
    assert f"resumed at step 400; last digits may differ {said}\n" in capsys.readouterr().out
