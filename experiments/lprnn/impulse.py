"""Impulse responses of the pools of a low-pass RNN (LP-RNN), and how long they keep a string."""

from collections.abc import Sequence
from math import ceil
from string import ascii_lowercase
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlmem.analysis.loaded import LoadedRun
from rlmem.analysis.output import Result
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.memory.lprnn import LPRNN
from rlmem.record.figures import as_image, figure
from rlmem.scan import linear_scan

Array = NDArray[np.float64]
HELD, ALIKE = 0.05, 0.02
"""A pool holds a string while it has more than this share of its largest content, and two strings are alike where they
differ by less than that share."""
LONGEST, MOST = 1 << 20, 64
"""The greatest number of slots that a response is followed for, and the greatest number of pools."""


def measure(
    run: LoadedRun | None,
    *,
    pools: int | None = None,
    base: float | None = None,
    string: str | None = None,
    other: str | None = None,
    seed: int = 0,
) -> Result:
    """Impulse responses of a chain of pools and of parallel ones (Stepleton et al. 2018, arXiv:1805.04955, figure 2).

    The input is 1 in the first slot and 0 after it; every curve is divided by its maximum. Pools and base are those of
    a run's LP-RNN, or else as given, 12 and 2 by default; pool n follows its source at the rate base^-n. Weights do not
    matter: pools have none, and I' only scales what enters the first pool.

    pools: pools without a run
    base: base of their rates without a run
    string: also draw how six such pools, with projections between them, keep this string (appendix A)
    other: another string, drawn beside the first with their difference; metrics `other/alike_...` say for how long the
        pools cannot tell them apart
    seed: root of these projections, where there is no run
    """
    about: dict[str, Any] = {}
    if run is not None:
        if pools is not None or base is not None:
            raise UserError("pools and base are those of the run; leave out the run or these")
        memory = next(iter(run.memories(LPRNN, "lprnn or lprnn_parallel").values()))
        pools, base, seed, about["filters"] = len(memory.alpha), memory.base, run.seed, memory.filters
    pools, base = 12 if pools is None else pools, 2.0 if base is None else base
    if not base > 1 or not 1 <= pools <= MOST:
        raise UserError(f"expected 1 to {MOST} pools and a base above 1, got {pools} and {base}")
    if other is not None and string is None:
        raise UserError("other is shown against a string; e.g. --string machinelearning")
    slots = followed(pools, base)
    curves = {name: response(pools, base, name, slots) for name in ("chain", "parallel")}
    lags = np.unique(np.geomspace(1, slots, 400).astype(np.int64)) - 1  # evenly spread on a logarithmic axis
    metrics, rows = {}, []
    for name, curve in curves.items():
        for n, values in enumerate(curve.T, 1):
            metrics[f"{name}/peak_{n}"] = float(values.argmax())
            metrics[f"{name}/mean_lag_{n}"] = float((values * np.arange(slots)).sum() / values.sum())
            shown = (lags.tolist(), values[lags].tolist(), (values[lags] / values.max()).tolist())
            rows += [
                {"filters": name, "pool": n, "lag": lag, "response": value, "normalised": scaled}
                for lag, value, scaled in zip(*shown, strict=True)
            ]
    about = {"pools": pools, "base": base, "slots": slots, **about}
    pictures, arrays = {"picture": picture(curves, lags, base)}, {}
    if string is not None:
        texts = [string] if other is None else [string, other]
        contents = [stored(text, len(max(texts, key=len)), base, projections(seed)) for text in texts]
        arrays = {f"string_{i}": values for i, values in enumerate(contents)}
        pictures["string"] = string_picture(contents, texts)
        about["strings"] = texts
        if other is not None:
            metrics |= {f"other/{name}": float(slots) for name, slots in alike(*contents).items()}
    return Result(metrics, rows, pictures, about, arrays)


def followed(pools: int, base: float) -> int:
    """Slots until the last pool of a chain has forgotten: its mean lag, sum of base^n - 1, and twelve deviations."""
    with np.errstate(over="ignore", invalid="ignore"):
        rate = base ** np.arange(1.0, pools + 1)
        needed = (rate - 1).sum() + 12 * np.sqrt((rate * (rate - 1)).sum())
    if not needed < LONGEST:
        problem = f"{pools} pools with base={base:g} remember for more than {LONGEST:,} slots"
        raise UserError(f"{problem}; e.g. --pools 12 --base 2")
    return ceil(needed) + 10


def response(pools: int, base: float, filters: Literal["chain", "parallel"], slots: int) -> Array:
    """[slots, pools]: the contents of each pool t slots after an impulse, in float64."""
    with Streams(0).module_init("impulse"):
        memory = LPRNN(1, 1, pools, 1, viewport_size=1, summariser_size=1, base=base, filters=filters).double()
    x = torch.eye(1, slots, dtype=torch.float64)[..., None]
    with torch.no_grad():
        return memory.pools(x, memory.initial_state(1), torch.zeros(1, slots, dtype=torch.bool))[0, :, :, 0].numpy()


def picture(curves: dict[str, Array], lags: NDArray[np.int64], base: float) -> Any:
    """Responses divided by their maxima, lag on a logarithmic axis; the chain above, parallel pools below."""
    import matplotlib

    drawing, axes = figure(6.0, 2, sharex=True)
    pools = curves["chain"].shape[1]
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.92, pools))
    for panel, (name, curve) in zip(axes[:, 0], curves.items(), strict=True):
        for n, (colour, values) in enumerate(zip(colours, curve.T, strict=True), 1):
            label = f"pool {n}" if n in (1, (pools + 1) // 2, pools) else None
            panel.plot(lags + 1, values[lags] / values.max(), "-" if n % 2 else "--", color=colour, lw=1.8, label=label)
        panel.set(xscale="log", ylabel="response / its maximum", title=f"{name}, {pools} pools, rates {base:g}⁻ⁿ")
    axes[1, 0].legend(loc="upper right")
    axes[1, 0].set(xlabel="slots, counted from that of the impulse as 1")
    return drawing


def projections(seed: int) -> Tensor:
    """Random orthonormal matrices Q [5, 26, 26], one between each two of the six pools that keep a string."""
    drawn = torch.randn(5, 26, 26, dtype=torch.float64, generator=Streams(seed).torch("string memory"))
    return torch.linalg.qr(drawn)[0]


def stored(text: str, letters: int, base: float, Q: Tensor) -> Array:
    """What six pools [T, 6, 26] hold while they read `text`, padded to `letters` letters, and for long after.

    The first filters the one-hot letter, pool n + 1 filters tanh(Q_n p_n), at the rates base^-n (Stepleton et al. 2018,
    appendix A). Raises UserError for anything but lower-case letters.
    """
    if not text or not set(text) <= set(ascii_lowercase):
        raise UserError(f"string={text}: expected the letters a to z; e.g. machinelearning")
    rates = [base**-n for n in range(1, len(Q) + 2)]
    rest = ceil(1.5 * sum(1 / rate - 1 for rate in rates))
    source = torch.zeros(1, letters + rest, len(ascii_lowercase), dtype=torch.float64)
    source[0, range(len(text)), [ascii_lowercase.index(letter) for letter in text]] = 1
    start = torch.zeros(source.shape[:2], dtype=torch.bool)
    pools: list[Tensor] = []
    for n, rate in enumerate(rates):
        if n:
            source = torch.tanh(pools[-1] @ Q[n - 1].T)
        pools.append(linear_scan(source.new_tensor(1 - rate), rate * source, torch.zeros_like(source[:, 0]), start))
    return torch.stack(pools, 2)[0].numpy()


def alike(one: Array, other: Array) -> dict[str, int]:
    """For how many slots two strings are ALIKE in each pool that holds them, and in all of these pools at once.

    Contents are shares of the largest that a pool holds of the first string. Slots count from the first one in which
    the strings differ, for `alike_all` as long as more than one pool holds something.
    """
    largest = np.abs(one).max((0, 2))
    size, gap = np.abs(one).max(2) / largest, np.abs(one - other).max(2) / largest
    began = np.maximum.accumulate(gap.max(1) > 0)[:, None]
    held = (size > HELD) & began
    close = gap < ALIKE
    counts = {f"alike_{n}": int(slots) for n, slots in enumerate((held & close).sum(0), 1)}
    return counts | {"alike_all": int(((close | ~held).all(1) & (held.sum(1) > 1)).sum())}


def string_picture(contents: Sequence[Array], texts: Sequence[str]) -> Any:
    """Slots as rows, units of all pools as columns, scaled to each pool's maximum; last, how two strings differ."""
    panels = list(zip(texts, contents, strict=True))
    largest = np.abs(contents[0]).max((0, 2))[:, None]
    if len(contents) == 2:
        panels.append((f"|{texts[0]} - {texts[1]}|", np.abs(contents[0] - contents[1])))
    drawing, axes = figure(3.0 * len(panels) + 0.7, len(panels), sharex=True)
    _, pools, width = contents[0].shape
    for panel, (name, values) in zip(axes[:, 0], panels, strict=True):
        flat = (values / largest).reshape(len(values), -1)
        shown = panel.imshow(flat, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        for n in range(1, pools):
            panel.axvline(n * width - 0.5, color="black", lw=0.8)
        panel.set(title=name, ylabel="slot", xticks=[(n + 0.5) * width for n in range(pools)])
        panel.set_xticklabels([str(n + 1) for n in range(pools)])
        as_image(panel)
    axes[-1, 0].set(xlabel="pool")
    drawing.colorbar(shown, ax=axes[:, 0], label="contents / the pool's maximum", location="bottom", shrink=0.8)
    return drawing
