"""What may influence what: nothing across a start, nothing from the future, from other rows or from padding."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from rlmem.conformance.compare import EXACT, Measurement, distance, finite, same_gradients, same_outputs, zero
from rlmem.conformance.probe import ROWS, Probe, forward, gradients, stepped, weighted
from rlmem.core.types import State
from rlmem.memory.base import Memory


def starts_separate_episodes(p: Probe) -> Iterator[Measurement]:
    """What follows a start equals an episode read alone: values, final state, gradients."""
    (memory, x, used, _), cut = p.case(), p.T // 3
    weights = list(memory.parameters())
    alone, final_alone = forward(memory, x[:, cut:], memory.initial_state(ROWS), p.flags(ROWS, p.T - cut))
    start = p.flags(ROWS, p.T, [cut])
    y, final = forward(memory, x, used, start)
    yield same_outputs("outputs from the start on", y[:, cut:], alone)
    yield Measurement("final state", distance(final, final_alone), EXACT[torch.float64])
    ours, truth = (gradients(weighted(z, p, f), weights) for z, f in ((y[:, cut:], final), (alone, final_alone)))
    yield same_gradients("of weights, from the start on", ours, truth)
    first = stepped(memory, x[:, cut : cut + 1], used, start[:, cut : cut + 1])[0]
    yield same_outputs("outputs of a step that starts", first, alone[:, :1])


def no_gradient_across_start(p: Probe) -> Iterator[Measurement]:
    """Exact zeros: nothing after a start has a gradient with respect to inputs and states before it."""
    memory, cut = p.memory(), p.T // 3
    for at in (cut, 0):
        x = p.inputs().requires_grad_()
        leaves, spec = tree_flatten(p.used_state(memory))
        before = [leaf.clone().requires_grad_(leaf.is_floating_point() or leaf.is_complex()) for leaf in leaves]
        y, final = forward(memory, x, spec.unflatten(before), p.flags(ROWS, p.T, [at]))
        carried = [leaf for leaf in before if leaf.requires_grad]
        grad_x, *grad_state = gradients(weighted(y[:, at:], p, final), [x, *carried])
        yield zero(f"gradient of inputs before a start in slot {at}", [grad_x[:, :at]])
        yield zero(f"gradient of the state before a start in slot {at}", grad_state)


def start_clears_nonfinite(p: Probe) -> Iterator[Measurement]:
    """A start clears inf and NaN from a state, in `forward` and in `step`; other rows never see them."""
    memory, x, cut = p.memory(torch.float32), p.inputs(dtype=torch.float32), p.T // 3
    bound, weights = EXACT[torch.float32], list(memory.parameters())
    initial = memory.initial_state(ROWS)
    at_once, later = p.flags(ROWS, p.T, [0]), p.flags(ROWS, p.T, [cut])
    truth, final_truth = forward(memory, x, initial, at_once)
    truth_later, _ = forward(memory, x, initial, later)
    for bad in (math.inf, math.nan):
        # Integers cannot become inf or NaN, and stay as they are.
        spoil = lambda s, bad=bad: torch.full_like(s, bad) if s.is_floating_point() or s.is_complex() else s  # noqa: E731
        spoilt = tree_map(spoil, p.used_state(memory))
        y, final = forward(memory, x, spoilt, at_once)
        yield same_outputs(f"outputs of forward, {bad} in the state", y, truth, bound=bound)
        yield Measurement(f"final state, {bad} in the state", distance(final, final_truth), bound)
        yield finite(f"gradients, {bad} in the state", gradients(weighted(y, p), weights))
        y, _ = forward(memory, x, spoilt, later)
        here = f"outputs from a start in slot {cut}, {bad} before"
        yield same_outputs(here, y[:, cut:], truth_later[:, cut:], bound=bound)
        y, _ = stepped(memory, x[:, :2], spoilt, at_once[:, :2])
        yield same_outputs(f"outputs of step, {bad} in the state", y, truth[:, :2], bound=bound)
        one_row = tree_map(lambda s, good: torch.cat([s[:1], good[1:]]), spoilt, initial)
        y, _ = forward(memory, x, one_row, later)
        yield same_outputs(f"outputs of other rows, {bad} in row 0", y[1:], truth_later[1:], bound=bound)


def tape_equals_segments(p: Probe) -> Iterator[Measurement]:
    """One row with several episodes equals a padded row per episode, and a row cut into pieces the whole row.

    The row is longer than in other checks, so that models that work in blocks of time join several.
    """
    memory, T = p.memory(), 5 * p.T // 2
    start = p.starts(rows=1, slots=T, about=3)
    start[0, 0] = False  # the first episode goes on from a carried state
    x, state = p.inputs(rows=1, slots=T).requires_grad_(), p.used_state(memory, rows=1)
    inputs = [x, *memory.parameters()]
    y, final = forward(memory, x, state, start)
    truth = gradients(weighted(y, p, final), inputs, keep=True)

    pieces, at, carried = [], 0, state
    for length in (1, T // 3, 2, T - T // 3 - 3):
        now = slice(at, at + length)
        piece, carried = forward(memory, x[:, now], carried, start[:, now])
        pieces.append(piece)
        at += length
    whole = torch.cat(pieces, 1)
    yield same_outputs("outputs of a row cut into pieces", whole, y, start)
    yield Measurement("final state of a row cut into pieces", distance(carried, final), EXACT[torch.float64])
    yield same_gradients("of a row cut into pieces", gradients(weighted(whole, p, carried), inputs), truth)

    whole = _in_padded_rows(memory, x, state, start, p)
    yield same_outputs("outputs of padded rows", whole, y, start)
    ours, truth = (gradients(weighted(z, p), inputs) for z in (whole, y))
    yield same_gradients("of padded rows", ours, truth)


def _in_padded_rows(memory: Memory, x: Tensor, state: State, start: Tensor, p: Probe) -> Tensor:
    """The outputs [1, T, H] of one row, each of whose episodes is read in a row of its own."""
    begins = [0, *start[0].nonzero().flatten().tolist()]
    lengths = [end - begin for begin, end in zip(begins, [*begins[1:], x.shape[1]], strict=True)]
    padded = torch.nn.utils.rnn.pad_sequence(list(x[0].split(lengths)), batch_first=True)
    flags = p.flags(len(lengths), padded.shape[1], [0])
    flags[0, 0] = False
    states = tree_map(lambda s, fresh: torch.cat([s, fresh[1:]]), state, memory.initial_state(len(lengths)))
    y, _ = forward(memory, padded, states, flags)
    return torch.cat([row[:length] for row, length in zip(y, lengths, strict=True)])[None]


def padding_changes_nothing(p: Probe) -> Iterator[Measurement]:
    """Slots appended on the right, whatever they hold, have no effect on outputs and gradients before them."""
    memory, x, state, start = p.case()
    weights = list(memory.parameters())
    y, _ = forward(memory, x, state, start)
    truth = gradients(weighted(y, p), weights)
    for flag, amount in ((False, 0.0), (True, 10.0)):
        junk = amount * p.normal(ROWS, 9, memory.input_size, stream=4)
        flags = torch.cat([start, torch.full((ROWS, 9), flag, device=p.device)], 1)
        padded, _ = forward(memory, torch.cat([x, junk], 1), state, flags)
        kind = "junk with starts" if flag else "zeros"
        yield same_outputs(f"outputs before {kind}", padded[:, : p.T], y, start)
        yield same_gradients(f"before {kind}", gradients(weighted(padded[:, : p.T], p), weights), truth)


def no_future(p: Probe) -> Iterator[Measurement]:
    """Outputs depend on nothing later: neither in value nor in gradient."""
    (memory, x, state, start), now = p.case(), p.T // 2
    y, _ = forward(memory, x.requires_grad_(), state, start)
    (gradient,) = gradients(weighted(y[:, :now], p), [x])
    yield Measurement("gradient of later inputs", gradient[:, now:].abs().max().item(), 1e-12)
    later, flags = x.detach().clone(), start.clone()
    later[:, now:] = 10 * p.normal(ROWS, p.T - now, memory.input_size, stream=3)
    flags[:, now:] = ~flags[:, now:]
    changed, _ = forward(memory, later, state, flags)
    yield same_outputs("outputs before a change", changed[:, :now], y[:, :now], start)


def rows_independent(p: Probe) -> Iterator[Measurement]:
    """A row's output depends neither on the other rows, nor on their order, nor on whether there are any."""
    memory, x, state, start = p.case()
    y, final = forward(memory, x.requires_grad_(), state, start)
    order = torch.tensor([2, 0, 1], device=p.device)
    reorder = lambda tree: tree_map(lambda s: s[order], tree)  # noqa: E731
    y_turned, final_turned = forward(memory, x[order], reorder(state), start[order])
    yield same_outputs("outputs in another order", y_turned, y[order])
    yield Measurement("final state in another order", distance(final_turned, reorder(final)), EXACT[torch.float64])
    steps, _ = stepped(memory, x[order, :2], reorder(state), start[order, :2])
    yield same_outputs("outputs of step in another order", steps, y[order, :2])
    alone, _ = forward(memory, x[:1], tree_map(lambda s: s[:1], state), start[:1])
    yield same_outputs("outputs of one row alone", alone, y[:1])
    (gradient,) = gradients(weighted(y[:1], p), [x])
    yield zero("gradient of other rows' inputs", [gradient[1:]])
