"""The kernels of the `triton` engine equal the loops that define them: on a GPU, or interpreted where there is none."""

import os
import subprocess
import sys

import pytest
import torch
import triton_cases
from helpers import ROOT

from rlmem.memory.linear_attention import FWP
from rlmem.scan import native

pytestmark = pytest.mark.gpu


@pytest.mark.slow
@pytest.mark.parametrize("cases", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_the_triton_kernels_equal_the_loops(cases):
    """Without a GPU, their algebra; in a process of its own, since triton reads the variable when it is imported."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        triton_cases.check(cases)
        return
    script = str(ROOT / "tests/support/triton_cases.py")
    subprocess.run([sys.executable, script, cases], env=os.environ | {"TRITON_INTERPRET": "1"}, check=True, timeout=280)


@pytest.mark.slow
@pytest.mark.parametrize("real", ["fp32", "fp64"])
def test_the_kernels_compile_for_a_gpu(real):
    """Which needs none; the interpreter accepts more than the compiler."""
    triton = pytest.importorskip("triton")
    source, target = triton.compiler.ASTSource, triton.backends.compiler.GPUTarget("cuda", 90, 32)
    from rlmem.scan import triton_kernels as kernels

    def compiles(kernel, **constants) -> None:
        kinds = dict.fromkeys(kernel.arg_names, f"*{real}") | dict.fromkeys(constants, "constexpr") | {"start": "*u8"}
        kinds |= dict.fromkeys({"T", "V", "K", "m", "H"} | ({"c"} if kernel is kernels.ffm_step else set()), "i32")
        signature = {name: kinds[name] for name in kernel.arg_names}
        assert triton.compile(source(kernel, signature, constants), target=target).asm["cubin"]

    for rule, limit in ("outer", 0.0), ("delta", 0.0), ("hadamard", 1.5):
        shared = {"LIMIT": limit, "RULE": rule, "EVERY": 16, "I": 32, "J": 32}
        compiles(kernels.matrix_forward, **shared, KEEP=True)
        compiles(kernels.matrix_backward, **shared)
    for name in ("ffm_in_forward", "ffm_in_backward", "ffm_step", "ffm_out_forward", "ffm_out_backward"):
        compiles(getattr(kernels, name), BLOCK=256)


def test_the_delta_rule_says_what_it_runs_on():
    """The native engine has no kernel for it."""
    assert FWP(4).runs_on("cpu") == "chunked"
    assert FWP(4, rule="sum").runs_on("cpu") == ("chunked" if native.missing() else "native")
    assert FWP(4, engine="loop").runs_on("cpu") == "loop"
