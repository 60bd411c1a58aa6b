"""What the kernels of the `triton` engine compute, beside the loops that define it, in values and gradients.

`python tests/support/triton_cases.py few|all` checks it by Triton's interpreter on the CPU (TRITON_INTERPRET=1), since
Triton reads that variable when it is imported; with CUDA, tests/unit/scan/test_triton.py calls it in its own process.
"""

import sys
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

from rlmem.memory.ffm import FFM
from rlmem.scan import hadamard_scan, linear, outer, triton_scan
from rlmem.scan.ffm import ffm_step, ffm_unroll
from rlmem.scan.triton_matrix import matrix_scan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
"""Relative to the largest entry; float32 sums over T slots in different orders."""


def draws(seed: int):
    """A function that draws tensors."""
    rng = torch.Generator().manual_seed(seed)
    return lambda dtype, *shape: torch.randn(shape, dtype=dtype, generator=rng).to(DEVICE)


def starts(B: int, T: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(B, T, generator=torch.Generator().manual_seed(T)) < rate).to(DEVICE)


def assert_same(ours, truth, inputs: list[Tensor], case) -> None:
    """Of two functions of `inputs`: the same outputs, and gradients of their sum weighted by cosines."""

    def values_and_gradients(function):
        leaves = [x.clone().requires_grad_() for x in inputs]
        outputs = function(*leaves)
        loss = sum((y * y.detach().cos().conj()).sum() for y in outputs)
        return [*outputs, *torch.autograd.grad(loss.real if loss.is_complex() else loss, leaves)]

    for i, (x, y) in enumerate(zip(values_and_gradients(ours), values_and_gradients(truth), strict=True)):
        error = (x - y).abs().max().item() / max(1, y.abs().max().item())
        assert x.shape == y.shape and error <= TOLERANCE[y.dtype], f"{case}: result {i} is off by {error:.1e}"


LINEAR = [
    (dtype, *sizes, constant, reverse)
    for dtype in (torch.float64, torch.complex128, torch.float32)
    for sizes in ((1, 1, False), (9, 5, False), (6, 70, False), (7, 4, True))
    for constant, reverse in product((False, True), repeat=2)
    if not sizes[2] or (constant and dtype == torch.complex128)
]
FEW_LINEAR = [
    (torch.float32, 1, 1, False, False, False),
    (torch.float64, 3, 5, False, False, True),
    (torch.float64, 3, 70, False, True, False),
    (torch.complex128, 3, 5, False, False, False),
    (torch.complex128, 3, 4, True, True, True),
]
"""Every kernel, both directions, several blocks of channels."""


def check_linear(dtype, T: int, N: int, shared: bool, constant: bool, reverse: bool) -> None:
    """h_t = a_t h_{t-1} + b_t of 2 rows of N channels; shared: 3 real inputs drive N channels each."""
    draw, features, start = draws(0), (3, N) if shared else (N,), starts(2, T)
    a = draw(dtype, *features) if constant else draw(dtype, 2, T, *features)
    b = draw(dtype.to_real(), 2, T, *features[:-1], 1) if shared else draw(dtype, 2, T, *features)

    def flat(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[: x.dim() - len(features)], -1)

    assert_same(
        lambda a, b, h0: [linear._Scan.apply(flat(a), flat(b), flat(h0), start, triton_scan, reverse)],
        lambda a, b, h0: [flat(linear.linear_scan(a, b, h0, start, "loop", reverse))],
        [a / a.abs().clamp(min=1), b, draw(dtype, 2, *features)],
        ("linear", dtype, T, N, shared, constant, reverse),
    )


def check_ahead() -> None:
    """A scan is to the bit what it is when every slot is loaded alone, both ways."""
    for dtype, (T, N), reverse in (torch.float32, (17, 70), False), (torch.complex64, (8, 5), True):
        for constant in (False, True):
            draw, start = draws(4), starts(2, T)
            a = draw(dtype, N) if constant else draw(dtype, 2, T, N)
            b, h0, grad = draw(dtype, 2, T, N), draw(dtype, 2, N), draw(dtype, 2, T, N)

            def results(ahead: int, a=a, b=b, h0=h0, grad=grad, start=start, reverse=reverse) -> list[Tensor]:
                triton_scan.AHEAD, before = ahead, triton_scan.AHEAD
                try:
                    h = triton_scan.forward(a, b, h0, start, reverse)
                    gradients = triton_scan.backward(a, h, h0, start, grad, b.shape[2], True, reverse)
                finally:
                    triton_scan.AHEAD = before
                return [h, *(x for x in gradients if x is not None)]

            for alone, ours in zip(results(1), results(triton_scan.AHEAD), strict=True):
                assert torch.equal(alone, ours), (dtype, T, N, constant)


RULES = ("outer", "delta", "hadamard")
MATRIX = [*product(RULES, (torch.float64,), (1, 2, 16, 37), ((3, 5), (33, 40)))]
MATRIX += [*product(RULES, (torch.float32,), (37,), ((33, 40),))]
FEW_MATRIX = [
    ("outer", torch.float64, 18, (3, 5)),
    ("delta", torch.float64, 18, (3, 5)),
    ("hadamard", torch.float64, 18, (5, 5)),
    ("delta", torch.float32, 3, (33, 40)),
]
"""Every rule, several pieces of time, several blocks of rows."""


def check_matrix(rule: str, dtype, T: int, size: tuple[int, int]) -> None:
    """M_t of 2 rows, values by keys, and its reads; Stable Hadamard Memory's, which is square, with a limit as well."""
    (V, K), start, draw = size, starts(2, T), draws(1)
    V = K if rule == "hadamard" else V
    v, key, query, M0 = draw(dtype, 2, T, V), draw(dtype, 2, T, K), draw(dtype, 2, T, K), draw(dtype, 2, V, K)
    key = F.normalize(key, dim=-1)  # so that the delta rule is stable
    if rule == "hadamard":
        for limit in (0.0, 1.5):
            assert_same(
                lambda *inputs, limit=limit: matrix_scan("hadamard", *inputs, start, limit),
                lambda *inputs, limit=limit: hadamard_scan(*inputs, start, limit or None, "loop"),
                [draw(dtype, 2, T, V), draw(dtype, 2, T, K), v, key, query, M0],
                (rule, dtype, T, size, limit),
            )
        return

    def loop(gate: Tensor, decay: Tensor, v: Tensor, key: Tensor, query: Tensor, M0: Tensor):
        if rule == "outer":
            y, S = outer.outer_scan(query, key, v, M0.mT, start, decay.log(), "loop")
        else:
            y, S = outer.delta_scan(query, key, v, gate, M0.mT, start, decay.log(), "loop")
        return y, S.mT

    def ours(gate: Tensor, decay: Tensor, *inputs: Tensor):
        gates = (decay, None) if rule == "outer" else (gate, decay)
        y, M = matrix_scan(rule, *gates, *inputs, start)
        return y + 0 * gate.sum(), M

    def truth(gate: Tensor, *inputs: Tensor):
        y, M = loop(gate, *inputs)
        return y + 0 * gate.sum(), M

    gates = [torch.sigmoid(draw(dtype, 2, T)) for _ in range(2)]
    assert_same(ours, truth, [*gates, v, key, query, M0], (rule, dtype, T, size))


def check_what_is_not_finite() -> None:
    """Neither an inf nor a NaN passes a start, in values or in gradients."""
    for rule, bad in product(RULES, (torch.inf, torch.nan)):
        draw, start = draws(2), torch.zeros(1, 20, dtype=torch.bool, device=DEVICE)
        start[0, 10] = True
        gate = draw(torch.float64, 1, 20, 4) if rule == "hadamard" else torch.sigmoid(draw(torch.float64, 1, 20))
        c = draw(torch.float64, 1, 20, 4) if rule == "hadamard" else gate if rule == "delta" else None
        v, key, query = (draw(torch.float64, 1, 20, 4) / 2 for _ in range(3))
        M0 = draw(torch.float64, 1, 4, 4)
        M0[0, 1, 1] = v[0, 3, 2] = key[0, 7, 0] = bad
        leaves = [x.requires_grad_() for x in (gate, v, key, query, M0)]
        y, M = matrix_scan(rule, gate, c, v, key, query, M0, start)
        gradients = torch.autograd.grad(y[:, 10:].sum() + M.sum(), leaves)
        for x in (y, M[:, None].flatten(2), *gradients[:4]):
            assert torch.isfinite(x[:, min(10, x.shape[1] - 1) :]).all(), (rule, bad)


def check_ffm(H: int, m: int, c: int) -> None:
    """FFM, fused and slot after slot."""
    torch.manual_seed(0)
    memory, start, draw = FFM(6, H, m, c, max_period=50, engine="loop").double().to(DEVICE), starts(2, 9), draws(3)
    x, state = draw(torch.float64, 2, 9, 6), draw(torch.complex128, 2, m, c)

    def weights(*parts: Tensor):
        """The parameters of the memory, from those that gradients are asked of."""
        names = ("project_in.weight", "project_in.bias", "mix.weight", "mix.bias", "a", "b")
        return dict(zip(names, parts, strict=True))

    def fused(x: Tensor, state: Tensor, W_in: Tensor, b_in: Tensor, W_mix: Tensor, b_mix: Tensor, a: Tensor, b: Tensor):
        gamma = torch.polar(a.clamp(max=-1e-8).exp()[:, None].expand(m, c), b.expand(m, c))
        return ffm_unroll(F.linear(x, W_in, b_in), gamma, W_mix, b_mix, state, start, "triton")

    inputs = [x, state, *(memory.get_parameter(name).detach() for name in weights(*"abcdef"))]
    whole = lambda x, state, *parts: functional_call(memory, weights(*parts), (x, state, start))  # noqa: E731
    assert_same(fused, whole, inputs, ("ffm", H, m, c))
    with torch.no_grad():
        layers = memory.project_in, memory.mix
        (W_in, b_in), (W_mix, b_mix) = ((layer.weight, layer.bias) for layer in layers)
        p = F.linear(x[:, 0], W_in, b_in)
        found = ffm_step(p, memory.gamma(), W_mix, b_mix, state, start[:, 0], "triton")
        for ours, truth in zip(found, memory.step(x[:, 0], state, start[:, 0]), strict=True):
            torch.testing.assert_close(ours, truth, rtol=1e-9, atol=1e-9)


def check(cases: str) -> None:
    """cases: "few" or "all"."""
    for case in FEW_LINEAR if cases == "few" else LINEAR:
        check_linear(*case)
    for case in FEW_MATRIX if cases == "few" else MATRIX:
        check_matrix(*case)
    for sizes in ((5, 4, 2), (70, 3, 1), (5, 33, 4))[: 2 if cases == "few" else 3]:
        check_ffm(*sizes)
    check_ahead()
    check_what_is_not_finite()


if __name__ == "__main__":
    check(sys.argv[1])
