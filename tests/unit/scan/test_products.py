"""The kernel of matrix products: right in every layout, and a row of a result the same whatever rows are beside it."""

import ctypes
import json
import subprocess
from itertools import product as combinations
from pathlib import Path

import pytest
import torch
from helpers import fast_only, killed_at, small_run, without_time
from small_runs import RECALL
from torch._subclasses.fake_tensor import FakeTensorMode

from rlmem.scan import native
from rlmem.scan.library import FLAGS, SOURCES
from rlmem.scan.native import FEW, KERNEL_LEADS, LITTLE, constant_weights, gradient_of_weight, linear

KERNEL = pytest.mark.skipif(not KERNEL_LEADS or bool(native.missing()), reason="products are torch's here")
SHAPES = [
    (1, 1, 1),
    (0, 3, 2),
    (2, 3, 0),
    (5, 3, 7),
    (9, 17, 48),
    (17, 0, 5),
    (37, 1100, 100),
    (140, 600, 97),
    (1100, 300, 49),
]
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
        found = native.multiply(x, W, b)
        torch.testing.assert_close(found.double(), truth, rtol=bound, atol=bound)
        assert torch.equal(native.multiply(x, W, b, native.packed(W)), found)
        apart = native.multiply(x[:, ::2], W[:, ::2], b)  # neither rows nor columns side by side
        torch.testing.assert_close(apart, native.multiply(x[:, ::2].contiguous(), W[:, ::2].contiguous(), b))


def test_compilers_see_one_product_for_any_number_of_rows():
    W, b, frames = torch.randn(9, 40), torch.randn(9), []

    def backend(graph, inputs):
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: linear(x, W, b), fullgraph=True, dynamic=True, backend=backend)
    with torch.no_grad():
        for rows in (4, FEW, 64):
            x = torch.randn(rows, 40)
            torch.testing.assert_close(compiled(x), x @ W.t() + b)
    assert len(frames) == 1


@KERNEL
def test_threads_share_a_product_without_changing_it(monkeypatch):
    W, b = torch.randn(130, 600), torch.randn(130)
    for x in (torch.randn(70, 600), torch.randn(600, 70).t()):
        monkeypatch.undo()
        alone = native.multiply(x, W, b)
        for threads in (2, 3, 7):
            monkeypatch.setattr(native, "threads_for", lambda work, threads=threads: threads)
            assert torch.equal(native.multiply(x, W, b), alone)
            assert torch.equal(native.multiply(x, W, b, native.packed(W)), alone)


@KERNEL
def test_a_row_does_not_depend_on_the_rows_beside_it():
    """What slots give together, as in training, is what each gave alone, as in acting: not a bit differs."""
    torch.manual_seed(0)
    x = torch.randn(300, 70)
    for layer in (native.Linear(70, 50), native.Linear(70, 4)):
        with torch.no_grad(), constant_weights(layer):
            together = layer(x)
            for rows in (1, 2, 7, 64, 299):
                assert torch.equal(layer(x[:rows]), together[:rows])
                assert torch.equal(linear(x[:rows], layer.weight, layer.bias), together[:rows])


@KERNEL
@pytest.mark.parametrize("processor", fast_only(["native"], ["native", "x86-64-v3 -mtune=znver3", "x86-64"]))
def test_nor_on_processors_that_are_not_here(tmp_path, processor):
    """GCC rounds the products of a sum alone for some of them."""
    flags = [f"-m{flag}" for flag in f"arch={processor}".replace(" -m", " ").split()]
    compiled, source = tmp_path / "products.so", SOURCES / "products.cpp"
    done = subprocess.run(["c++", *FLAGS, "-DREAL=float", *flags, source, "-o", compiled], capture_output=True)
    if done.returncode and processor != "native":
        pytest.skip(f"no compiler for {processor}")
    assert done.returncode == 0, done.stderr
    kernel = ctypes.CDLL(str(compiled)).product
    address, size = ctypes.c_void_p, ctypes.c_int64
    kernel.argtypes = [address, size, size] * 2 + [address] * 3 + [size] * 4 + [address]
    x, W = torch.randn(50, 300), torch.randn(50, 300)
    found = []
    for rows in (50, 1):
        y = torch.empty(rows, 50)
        addresses = x.data_ptr(), *x.stride(), W.data_ptr(), *W.stride(), None, None, y.data_ptr()
        kernel(*addresses, rows, 300, 50, 1, None)
        found.append(y)
    torch.testing.assert_close(found[0], x @ W.t(), rtol=1e-4, atol=1e-4)
    assert torch.equal(found[0][:1], found[1])


@KERNEL
def test_long_sums_stay_exact():
    x, y = torch.rand(65_536, 20), torch.rand(65_536, 20)
    truth = x.double().t() @ y.double()
    for found in (gradient_of_weight(x, y), native.multiply(x.t(), y.t(), None, native.packed(y.t()))):
        assert (found / truth - 1).abs().max() < 2e-6


@KERNEL
def test_negated_views_are_read_as_what_they_are():
    z, W = torch.randn(40, 24, dtype=torch.complex64), torch.randn(30, 24)
    negated = z.conj().imag
    assert negated.is_neg()
    with torch.no_grad():
        torch.testing.assert_close(linear(negated, W), -z.imag @ W.t())
        torch.testing.assert_close(native.multiply(W, negated, None, native.packed(negated)), W @ -z.imag.t())


@KERNEL
def test_what_is_traced_or_transformed_is_torchs():
    x, W = torch.randn(40, 24), torch.randn(30, 24)
    with torch.no_grad(), FakeTensorMode():
        assert linear(torch.randn(40, 24), torch.randn(30, 24)).shape == (40, 30)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert {linear(x[:n], W).dtype for n in (4, 40)} == {torch.bfloat16}
    torch.testing.assert_close(torch.vmap(lambda row: linear(row.expand(40, 24), W))(x)[:, 0], x @ W.t())


@KERNEL
@pytest.mark.parametrize("memory", fast_only(["ffm"], ["mlp", "ffm", "gru", "lstm", "gpt"]))
def test_what_is_read_before_the_first_gradient_step_is_what_acting_computed(in_tmp, memory):
    sizes = "algo.rollout_slots=40 env.num_envs=20 total_steps=1600 memory.hidden_size=32 encoder.hidden_size=32"
    small_run(f"memory={memory}", *sizes.split())
    deviations = [row["ppo/ratio_max_dev"] for row in without_time("run") if "update" in row]
    assert len(deviations) > 1 and set(deviations) == {0.0}, deviations


@pytest.mark.parametrize("rows", [FEW, FEW + 1, LITTLE // (24 * 40) + 1])
def test_values_and_gradients_are_those_of_torch(rows):
    torch.manual_seed(0)
    x, W, b = torch.randn(rows, 24), torch.randn(40, 24), torch.randn(40)
    truth = gradients(x.double(), W.double(), b.double())
    for ours, theirs in zip(gradients(x, W, b), truth, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-3 * theirs.abs().max().item())


def gradients(*leaves):
    """The product with a gradient and without, its gradients, and those of the gradients."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    y = linear(*leaves)
    with torch.no_grad():
        plain = linear(*leaves)
    first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
    return plain, *(x.detach() for x in (y, *first)), *second


@KERNEL
def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^x \[2, 3\], W \[5, 4\] and b None do not fit$"):
        native.multiply(torch.randn(2, 3), torch.randn(5, 4))
    with pytest.raises(ValueError, match=r"b \[1\] do not fit$"):
        native.multiply(torch.randn(2, 4), torch.randn(5, 4), torch.randn(1))
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes"):
        linear(torch.randn(99, 3), torch.randn(5, 4))


def test_a_resumed_run_says_what_is_another(in_tmp, capsys):
    with killed_at(4):
        small_run("on_exists=resume", base=RECALL)
    file, text = Path("run/run.json"), Path("run/run.json").read_text()
    small_run("on_exists=resume", "total_steps=400", base=RECALL)
    assert "resumed at step 368\n" in capsys.readouterr().out
    file.write_text(json.dumps(json.loads(text) | {"versions": {"torch": "1\x1b[31m\n"}, "machine": 3}))
    small_run("on_exists=resume", "total_steps=500", base=RECALL)
    said = f"(torch: 1[31m before, {torch.__version__} now)"
    assert f"resumed at step 400; last digits may differ {said}\n" in capsys.readouterr().out
