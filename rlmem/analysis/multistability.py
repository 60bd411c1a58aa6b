"""States under a long neutral input: attractors, and how fast pairs of states meet."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.features import nothing_blocked, read_by
from rlmem.analysis.loaded import LoadedRun
from rlmem.analysis.output import LOOKS, Result, beside_null, curve_rows, if_reached
from rlmem.core.errors import UserError
from rlmem.core.types import State
from rlmem.memory.base import Memory
from rlmem.record.figures import figure

Array = NDArray[np.float64]
PIECE = 256
"""The most slots that are read at once."""
EXACT, RATIO = 64, 1.15
"""Every slot is looked at up to the first; from there on, slots that are further apart by the second each time."""
APART = 0.05
"""States nearer to each other than this share of what pairs were apart at first count as one, or as at rest."""
IN_TURN = 8
"""Slots after the end, each of which is looked at: a cycle may have ended just as often between two other looks."""
STRIDE, BEFORE, MEASURED = 16, 64, 8
"""Slots that a derivative passes at once; how many times it does so before its growth is measured, and for how long."""


class Held(NamedTuple):
    """What became of M states while a memory read the same input again and again.

    slots: when it was looked at, ascending from 0, [K]; the last look is at the end, or before states were not finite
    apart: the mean distance of pairs of states then, as a share of that at slot 0, [K]
    clusters: how many states are apart at first, and in the end
    resting: the share of states that no longer moved, in any look of the last half or in the slots after it
    eigenvalue: of d state' / d state in each final state, the size of the greatest, [M]
    final: the final states, [M, F]
    scale: the mean distance of pairs at slot 0; 1 if they are all the same
    """

    slots: NDArray[np.int64]
    apart: Array
    clusters: tuple[int, int]
    resting: float
    eigenvalue: Array
    final: Array
    scale: float


def measure(run: LoadedRun, *, episodes: int = 32, after: int = 10, slots: int = 10_000) -> Result:
    """What is left of the states that cues led to, after a long neutral input (arXiv:2605.12206).

    The states are those of the actor's memory after the first `after` slots of greedy episodes. From there it reads
    one input for `slots` slots. Measured are the number of clusters of states in the end, the distance of pairs over
    time with its half-life, and the size of the greatest eigenvalue of d state' / d state where the states end. The
    null is the same memory before it learnt, in the same episodes.

    after: slots read before, fewer where an episode is shorter
    slots: slots of neutral input: what the memory reads in the slot that is nearest to the mean of all but first slots
    """
    if not any(map(is_kept, tree_leaves(run.agent.trunks.actor.initial_state(1)))):
        problem = f"memory={run.config.choices['memory']} has no state that holds what was read"
        raise UserError(f"{run.path}: {problem}; e.g. a run with memory=gru")
    played = run.play(episodes)
    batch, first = played.batch, min(after, int(played.length.min()))
    with torch.no_grad():
        place = usual(read_by(run.agent.trunks.actor, batch), batch.mask & ~batch.start)

    def held(agent: Agent) -> Held:
        trunk = agent.trunks.actor
        with torch.no_grad():
            x = read_by(trunk, batch)
            state = trunk.memory(x[:, :first], trunk.initial_state(episodes), batch.start[:, :first])[1]
        return hold(trunk.memory, x[place], state, slots)

    by_agent = run.with_null(held)
    nulls = {name: numbers(its) for name, its in by_agent.items()}
    learnt = ["attractors", "resting", "distance_at_end", *if_reached("half_life", nulls), "eigenvalue"]
    metrics = beside_null(nulls, learnt)
    rows = curve_rows(by_agent, "slot", lambda its: {"slot": its.slots, "distance": its.apart})
    about = {"episodes": episodes, "after": first, "slots": slots}
    arrays = {f"final_{name}": its.final for name, its in by_agent.items()}
    return Result(metrics, rows, {"picture": picture(by_agent)}, about, arrays)


def usual(x: Tensor, among: Tensor) -> tuple[int, int]:
    """The place (n, s) of the input of x [N, S, D] that is nearest to the mean of those `among` [N, S], or of all."""
    among = among if among.any() else torch.ones_like(among)
    far = torch.where(among, (x - x[among].mean(0)).square().sum(-1), torch.inf)
    n, s = divmod(int(far.argmin()), x.shape[1])
    return n, s


def hold(memory: Memory, x: Tensor, state: State, slots: int) -> Held:
    """Read the input x [D] for `slots` slots from M states, or until one is no longer finite."""
    begin = numbers_of(state)
    first = spread(begin)
    scale = first or 1.0
    seen, apart, late = [0], [first / scale], [begin]
    final, limit = begin, APART * scale
    for pause in pauses(slots):
        following = state
        with torch.no_grad():
            for piece in torch.arange(pause).split(PIECE):
                following = memory(*again(x, following, len(piece)))[1]
        now = numbers_of(following)
        if not np.isfinite(now).all():  # they grow without bound
            break
        state, final = following, now
        seen.append(seen[-1] + pause)
        apart.append(spread(now) / scale)
        late = [now] if seen[-1] <= (slots + 1) // 2 else [*late, now]
    following = state
    for _ in range(IN_TURN):
        with torch.no_grad():
            following = memory(*again(x, following, 1))[1]
        late.append(numbers_of(following))
    moved = np.max([np.linalg.norm(final - other, axis=1) for other in late], 0)
    resting = float((moved <= limit).mean()) if seen[-1] == slots else 0.0
    counted = clusters(begin, limit), clusters(final, limit)
    return Held(np.array(seen), np.array(apart), counted, resting, eigenvalues(memory, x, state), final, scale)


def pauses(slots: int) -> Iterator[int]:
    """How many slots are read before each look, `slots` in all: one at a time at first, then ever more."""
    at = 0
    while at < slots:
        pause = min(1 if at < EXACT else int(at * (RATIO - 1)), slots - at)
        at += pause
        yield pause


def again(x: Tensor, state: State, slots: int) -> tuple[Tensor, State, Tensor]:
    """What a memory reads where the input x [D] comes `slots` times in every row."""
    M = len(tree_leaves(state)[0])
    return x.expand(M, slots, -1).contiguous(), state, torch.zeros(M, slots, dtype=torch.bool)


def is_kept(leaf: Tensor) -> bool:
    """Whether a leaf of a state holds what was read. One number for each row counts slots, or is a seed."""
    return leaf.dim() > 1 and (leaf.is_floating_point() or leaf.is_complex())


def numbers_of(state: State) -> Array:
    """The real numbers [M, F] of what M states hold."""
    leaves = [leaf.detach().resolve_conj() for leaf in tree_leaves(state) if is_kept(leaf)]
    real = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in leaves]
    return torch.cat([leaf.double().flatten(1) for leaf in real], 1).numpy()


def spread(states: Array) -> float:
    """The mean Euclidean distance of all pairs of states [M, F]."""
    from scipy.spatial.distance import pdist

    return float(pdist(states).mean()) if len(states) > 1 else 0.0


def clusters(states: Array, limit: float) -> int:
    """How many groups of states [M, F] there are, if states no further apart than `limit` are in one."""
    from scipy.cluster.hierarchy import fcluster, linkage

    return int(fcluster(linkage(states, "single"), limit, "distance").max()) if len(states) > 1 else 1


def eigenvalues(memory: Memory, x: Tensor, state: State) -> Array:
    """The size of the greatest eigenvalue of d state' / d state [M] in each of M states, for the input x [D].

    A random vector is multiplied by the transposed Jacobian again and again, STRIDE slots at a time. What it grows by
    in each slot tends to that size, whether eigenvalues are real or complex.
    """
    leaves, structure = tree_flatten(state)
    held = [i for i, leaf in enumerate(leaves) if is_kept(leaf)]
    generator = torch.Generator().manual_seed(0)
    vector = [torch.randn(leaves[i].shape, generator=generator, dtype=leaves[i].dtype) for i in held]
    growth = torch.zeros(len(leaves[0]), dtype=torch.float64)
    for turn in range(BEFORE + MEASURED):
        own = [leaf.detach().clone() for leaf in leaves]
        points = [own[i].requires_grad_() for i in held]
        with torch.enable_grad(), nothing_blocked(memory):
            after = tree_leaves(memory(*again(x, tree_unflatten(own, structure), STRIDE))[1])
        ends = [(after[i], part) for i, part in zip(held, vector, strict=True) if after[i].requires_grad]
        if not ends:  # nothing depends on what was before
            return np.zeros(len(growth))
        gradients = torch.autograd.grad([end for end, _ in ends], points, [part for _, part in ends], allow_unused=True)
        vector = [torch.zeros_like(p) if g is None else g for p, g in zip(points, gradients, strict=True)]
        vector, norm = normalised(vector)
        if turn >= BEFORE:
            growth += norm.log()
    return (growth / (MEASURED * STRIDE)).exp().numpy()


def normalised(vector: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The vector of each row, in parts [M, ...], with norm 1, and the norms [M] that it had; zeros stay zeros."""
    squares = [part.detach().abs().double().square().flatten(1).sum(1) for part in vector]
    norm = torch.stack(squares).sum(0).sqrt()
    by = torch.where(norm > 0, norm, 1.0)
    return [(p / by.view(-1, *[1] * (p.dim() - 1))).to(p.dtype) for p in vector], norm


def half_life(of: Held) -> tuple[float, bool]:
    """The slots until pairs are half as far apart as at first, between two looks by interpolation; whether they are."""
    below = np.flatnonzero(of.apart <= of.apart[0] / 2)
    if not len(below) or not of.apart[0]:
        return float(of.slots[-1]), False
    k = int(below[0])
    (before, after), (high, low) = of.slots[k - 1 : k + 1], of.apart[k - 1 : k + 1]
    return float(before + (after - before) * (high - of.apart[0] / 2) / (high - low)), True


def numbers(of: Held) -> dict[str, float]:
    """What the states come to.

    attractors: clusters of states in the end
    clusters_at_start: of the states that cues led to
    resting: see `Held`; below 1 where some states have not come to an attractor
    distance_at_end: of pairs, as a share of the first one
    half_life: of that distance
    half_life_reached: 1, or 0 if it is longer than the input; the length of that is the half-life then
    eigenvalue: the median over final states of the size of the greatest
    slots_held: how long the input was read, fewer slots than asked for where states grew until they were not finite
    """
    slots, reached = half_life(of)
    return {
        "attractors": float(of.clusters[1]),
        "clusters_at_start": float(of.clusters[0]),
        "resting": of.resting,
        "distance_at_end": float(of.apart[-1]),
        "half_life": slots,
        "half_life_reached": float(reached),
        "eigenvalue": float(np.median(of.eigenvalue)),
        "slots_held": float(of.slots[-1]),
    }


def picture(by_agent: dict[str, Held]) -> Any:
    """The distance of pairs over the slots of neutral input, above; the final states on two axes, below."""
    drawing, axes = figure(6.2, 2)
    for name, its in by_agent.items():
        axes[0, 0].plot(
            its.slots + 1, its.apart, label=f"{name}: {its.clusters[1]} of {its.clusters[0]} left", **LOOKS[name]
        )
        centred = (its.final - its.final.mean(0)) / its.scale
        directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
        places = np.pad(centred @ directions.T, ((0, 0), (0, 2 - len(directions))))
        axes[1, 0].scatter(*places.T, s=22, color=LOOKS[name]["color"], alpha=0.6, label=name)
    axes[0, 0].set(xscale="log", ylim=(-0.05, None), xlabel="slots of neutral input, plus 1")
    axes[0, 0].set(ylabel="distance of pairs of states", title="what is left of the states that cues led to")
    axes[1, 0].set(xlabel="first principal axis", ylabel="second", title="the states in the end, around their mean")
    axes[1, 0].update_datalim([(-0.6, -0.6), (0.6, 0.6)])  # what is left of nothing would fill the panel
    axes[1, 0].autoscale_view()
    for panel in axes[:, 0]:
        panel.legend()
    return drawing
