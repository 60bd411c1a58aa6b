"""`precision=bf16` and `precision=tf32`: what products on a GPU round, and where they are refused."""

import pytest
import torch
from helpers import changed, small_run

import rlmem
from rlmem.core.errors import UserError
from rlmem.run.assemble import _compute_in
from rlmem.scan import native
from rlmem.scan.native import linear

GPU = torch.device("cuda")
THERE = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(autouse=True)
def float32_afterwards():
    yield
    _compute_in("float32", torch.device("cpu"))


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_a_cpu_refuses_it_in_stored_runs(in_tmp):
    changed(small_run() / "config.yaml", "precision: float32", "precision: tf32")
    with pytest.raises(UserError, match="precision=tf32: "):
        rlmem.load("run", trust=True)


@pytest.mark.parametrize(
    ("capability", "mm", "accepted"), [((7, 5), 1, set()), ((8, 0), 1, {"tf32", "bf16"}), ((8, 0), None, {"tf32"})]
)
def test_the_gpu_and_torchs_version_decide(monkeypatch, capability, mm, accepted):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    if mm is None:
        monkeypatch.setattr(torch.ops.aten, "mm", None)
    for precision in ("tf32", "bf16"):
        try:
            _compute_in(precision, GPU)
            assert precision in accepted
            assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == (precision == "tf32")
        except UserError:
            assert precision not in accepted


def test_on_a_cpu_products_stay_as_they_are(monkeypatch):
    x, W, b = draw(300, 20), draw(8, 20), draw(8)
    expected = linear(x, W, b)
    monkeypatch.setattr(native, "rounds_to_bf16", True)
    assert torch.equal(linear(x, W, b), expected)


def test_inputs_in_bf16_are_rounded_and_sums_are_not(monkeypatch):
    """Forward and backward, with torch's product of rounded numbers emulated."""
    monkeypatch.setattr(native, "_rounds", lambda x, W: True)
    monkeypatch.setattr(torch, "mm", lambda x, W, out_dtype: x.to(out_dtype) @ W.to(out_dtype))
    x, W, b, g = draw(300, 20), draw(8, 20), draw(8), draw(300, 8)
    leaves = [v.clone().requires_grad_() for v in (x, W, b)]
    y = linear(*leaves)
    found = [y, *torch.autograd.grad(y, leaves, g)]
    X, V, G = (v.bfloat16().double() for v in (x, W, g))
    for ours, truth in zip(found, (X @ V.t() + b, G @ V, G.t() @ X, g.double().sum(0)), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-5)


@THERE
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "least", "most"), [("float32", 0, 1e-6), ("tf32", 1e-5, 1e-3), ("bf16", 1e-3, 1e-2)]
)
def test_products_are_off_by_their_rounding(precision, least, most):
    """Forward and backward, by the GPU's own instructions."""
    _compute_in(precision, GPU)
    x, W, g = draw(300, 256).to(GPU), draw(64, 256).to(GPU), draw(300, 64).to(GPU)
    leaves = [v.clone().requires_grad_() for v in (x, W)]
    y = linear(*leaves)
    found = [y, *torch.autograd.grad(y, leaves, g)]
    truth = [x.double() @ W.double().t(), g.double() @ W.double(), g.double().t() @ x.double()]
    off = max(float((v.detach() - w).norm() / w.norm()) for v, w in zip(found, truth, strict=True))
    assert least <= off < most
