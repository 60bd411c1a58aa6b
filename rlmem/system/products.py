"""Which of torch's two libraries multiplies large matrices faster on this processor: measured once, then kept.

Torch multiplies float32 matrices by its BLAS (MKL, on x86), and has oneDNN's product beside it. Which is faster depends
on the processor: oneDNN takes half of MKL's time on some and the same on others. Their sums differ in the last digits,
so all processes of a run must take the same, and so must the process that resumes it.
"""

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Literal, cast, get_args

import torch
from torch.nn import functional as F

from rlmem.errors import UserError
from rlmem.system.hardware import cache_folders, own_folder, processor, processor_features

Library = Literal["blas", "onednn"]

SHAPES = ((512, 128, 576), (1024, 256, 256), (4096, 128, 128))
"""Rows, inputs and outputs of the products that are measured."""
ROUNDS = 5
GAIN = 1.1
"""oneDNN must be faster by this factor. Where both are alike, noise shall not decide."""


@cache
def library() -> Library:
    """The library for large products: what RLMEM_PRODUCTS names, or what was measured on such a processor.

    Raises UserError if RLMEM_PRODUCTS names none.
    """
    named, choices = os.environ.get("RLMEM_PRODUCTS"), get_args(Library)
    if named and named not in choices:
        raise UserError(f"RLMEM_PRODUCTS={named}: expected {' or '.join(choices)}; e.g. unset RLMEM_PRODUCTS")
    if not has_onednn():
        return "blas"
    return cast(Library, named) if named else _kept()


def has_onednn() -> bool:
    """Whether torch has oneDNN's product; it has no public name."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _kept() -> Library:
    """What a process on such a processor has measured before this one, else what this one measures."""
    about = "\n".join((processor(), processor_features(), torch.__version__))
    name = f"products-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    measured: Library | None = None
    for folder in cache_folders():
        with suppress(OSError):  # the next folder may do
            path = own_folder(folder) / name
            if not (found := _read(path)):
                measured = measured or ("onednn" if _ratio() >= GAIN else "blas")
                found = _keep(path, measured)
            return found
    return measured or ("onednn" if _ratio() >= GAIN else "blas")


def _read(path: Path) -> Library | None:
    word = path.read_text(errors="replace").strip() if path.is_file() else ""
    return cast(Library, word) if word in get_args(Library) else None


def _keep(path: Path, measured: Library) -> Library:
    """Write a file that appears whole. Of processes that measure at once the first decides, for all."""
    if path.is_file() and not _read(path):
        path.unlink(missing_ok=True)  # damaged
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        aside.write_text(f"{measured}\n")
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return _read(path) or measured


def _ratio() -> float:
    """The time of BLAS over that of oneDNN, of one thread, in turns; the best of each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    blas = onednn = 0.0
    try:
        for rows, inputs, outputs in SHAPES:
            x, W, b = torch.ones(rows, inputs), torch.ones(outputs, inputs), torch.ones(outputs)
            times: tuple[list[float], list[float]] = [], []
            for _ in range(ROUNDS + 1):
                began = perf_counter()
                F.linear(x, W, b)
                between = perf_counter()
                onednn_linear(x, W, b)
                times[0].append(between - began)
                times[1].append(perf_counter() - between)
            blas, onednn = blas + min(times[0]), onednn + min(times[1])
    finally:
        torch.set_num_threads(threads)
    return blas / onednn


def onednn_linear(x: torch.Tensor, W: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """x W^T + b by oneDNN for float32 x [n, D], W [H, D] and b [H], all on the CPU; records no gradient."""
    return torch.ops.mkldnn._linear_pointwise(x, W, b, "none", [], "")
