"""The kernels of the `triton` engine equal the loops that define them: on a GPU, or interpreted where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton_cases

from rlmem.memory.fwp import FWP
from rlmem.scan import native

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("cases", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_the_triton_kernels_equal_the_loops(cases):
    """Without a GPU, their algebra; in a process of its own, since triton reads the variable when it is imported."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        triton_cases.check(cases)
        return
    script = str(Path(__file__).with_name("triton_cases.py"))
    subprocess.run([sys.executable, script, cases], env=os.environ | {"TRITON_INTERPRET": "1"}, check=True, timeout=280)


def test_the_delta_rule_says_what_it_runs_on():
    """The native engine has no kernel for it."""
    assert FWP(4).runs_on("cpu") == "chunked"
    assert FWP(4, rule="sum").runs_on("cpu") == ("chunked" if native.missing() else "native")
    assert FWP(4, engine="loop").runs_on("cpu") == "loop"
