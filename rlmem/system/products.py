"""Which of torch's two libraries multiplies large matrices faster on this processor: measured once, then kept.

Torch multiplies float32 matrices by its BLAS (MKL, on x86), and has oneDNN's product beside it. Which is faster depends
on the processor: oneDNN takes half of MKL's time on some and the same on others. Their sums differ in the last digits,
so the processes of a run on one machine take the same, and so does the process that resumes it.
"""

import hashlib
import os
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import Any, Literal, cast, get_args

import torch
from torch.nn import functional as F

from rlmem.errors import UserError
from rlmem.system.hardware import cache_folders, own_folder, processor, processor_features

Library = Literal["blas", "onednn"]

SHAPES = ((512, 128, 576), (1024, 256, 256), (4096, 128, 128))
"""Rows, inputs and outputs of the products that are measured, in both directions."""
ROUNDS = 10
GAIN = 1.05
"""oneDNN must be faster by this factor, so that noise seldom decides where both are alike."""


_of_run: Library | None = None


def take(recorded: Any) -> None:
    """Go on with the library that run.json of a resumed run names; anything else there, such as None, is ignored."""
    global _of_run
    there = recorded in get_args(Library) and (recorded == "blas" or has_onednn())
    _of_run = cast(Library, recorded) if there else None


def library() -> Library:
    """The library for large products.

    It is what RLMEM_PRODUCTS names, else that of the run that is resumed (`take`), else the faster one here.

    Raises UserError if RLMEM_PRODUCTS names none, or one that is not here.
    """
    if named := os.environ.get("RLMEM_PRODUCTS"):
        choices = get_args(Library) if has_onednn() else ("blas",)
        if named not in choices:
            raise UserError(f"RLMEM_PRODUCTS={named}: accepted here: {', '.join(choices)}; e.g. unset RLMEM_PRODUCTS")
        return cast(Library, named)
    return _of_run or faster()


def has_onednn() -> bool:
    """Whether torch has oneDNN's product; it has no public name."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def faster() -> Library:
    """What a process has measured on such a processor before this one, else what this one measures."""
    if not has_onednn():
        return "blas"
    about = "\n".join((processor(), processor_features(), torch.__version__, str((SHAPES, GAIN))))
    name = f"products-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    for folder in cache_folders():
        with suppress(OSError):  # the next folder may do
            path = own_folder(folder) / name
            return _load(path) or _store(path, _measured())
    return _measured()


@cache
def _measured() -> Library:
    return "onednn" if _ratio() >= GAIN else "blas"


def _load(path: Path) -> Library | None:
    """The word in a file; None if there is no file, or something else in it."""
    word = path.read_text(errors="replace").strip() if path.is_file() else ""
    return cast(Library, word) if word in get_args(Library) else None


def _store(path: Path, measured: Library) -> Library:
    """Write a file that appears whole. Of processes that measure at once the first decides, for all."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(f"{measured}\n")
    try:
        os.link(file.name, path)
    except OSError:  # another process was first, the file is damaged, or this file system has no links
        if not _load(path):
            os.replace(file.name, path)
    finally:
        Path(file.name).unlink(missing_ok=True)
    return _load(path) or measured


def _ratio() -> float:
    """The time of BLAS over that of oneDNN, of one thread, in turns; the best of each. Zero if oneDNN fails here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    blas = onednn = 0.0
    try:
        for rows, inputs, outputs in SHAPES:
            ones = partial(torch.ones, dtype=torch.float32, device="cpu")
            x, W, b, y = ones(rows, inputs), ones(outputs, inputs), ones(outputs), ones(rows, outputs)
            for multiplied in ((x, W, b), (y, W.t(), None)):  # and the gradient of x from that of y
                times: tuple[list[float], list[float]] = [], []
                for _ in range(ROUNDS + 1):
                    began = perf_counter()
                    F.linear(*multiplied)
                    between = perf_counter()
                    onednn_linear(*multiplied)
                    times[0].append(between - began)
                    times[1].append(perf_counter() - between)
                blas, onednn = blas + min(times[0]), onednn + min(times[1])
    except RuntimeError:
        return 0.0
    finally:
        torch.set_num_threads(threads)
    return blas / onednn


def onednn_linear(x: torch.Tensor, W: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """x W^T + b by oneDNN for float32 x [n, D], W [H, D] and b [H], all on the CPU; records no gradient."""
    return torch.ops.mkldnn._linear_pointwise(x, W, b, "none", [], "")
