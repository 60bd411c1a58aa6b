"""Properties of calls: the same result however it is computed, and no side effects."""

import io
import math
import random
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from rlmem.conformance.compare import EXACT, Measurement, distance, finite, same_gradients, same_outputs
from rlmem.conformance.probe import ROWS, Probe, forward, gradients, stepped, weighted
from rlmem.core.errors import UserError
from rlmem.core.types import State
from rlmem.scan import Engine, chosen_engine


def step_equals_forward(p: Probe) -> Iterator[Measurement]:
    """Outputs and final state are the same, with starts and with a carried state."""
    for dtype, bound in EXACT.items():
        (memory, x, state, start), name = p.case(dtype), str(dtype).removeprefix("torch.")
        y, final = forward(memory, x, state, start)
        y_steps, final_steps = stepped(memory, x, state, start)
        yield same_outputs(f"outputs, {name}", y_steps, y, start, bound)
        yield Measurement(f"final state, {name}", distance(final_steps, final), bound)


def parameters_take_effect(p: Probe) -> Iterator[Measurement]:
    """A memory that has acted and learned, and then changes, equals one that had the new parameters from the outset."""
    (memory, x, state, start), fresh = p.case(), p.memory()
    gradients(weighted(forward(memory, x, state, start)[0], p), list(memory.parameters()))
    stepped(memory, x[:, :2], state, start[:, :2])
    with torch.no_grad():
        for new, parameter in zip(p.changed(memory).parameters(), fresh.parameters(), strict=True):
            parameter.copy_(new)
    (y, _), (truth, _) = (forward(one, x, state, start) for one in (memory, fresh))
    yield same_outputs("outputs of forward after an update", y, truth, start)
    steps, _ = stepped(memory, x[:, :8], state, start[:, :8])
    yield same_outputs("outputs of step after an update", steps, truth[:, :8], start)
    ours, expected = (gradients(weighted(z, p), list(m.parameters())) for z, m in ((y, memory), (truth, fresh)))
    yield same_gradients("after an update", ours, expected)


def engines_agree(p: Probe) -> Iterator[Measurement]:
    """Every engine that runs here gives the values and gradients of the plain loop."""
    if not p.pristine.scanning():
        return
    by_engine: dict[str, tuple[Tensor, list[Tensor]]] = {}
    for engine in ("loop", *(e for e in get_args(Engine) if e not in ("auto", "loop"))):
        try:
            chosen_engine(engine, p.device)
        except UserError:  # not on this machine
            continue
        memory, x, start = p.memory(), p.inputs().requires_grad_(), p.starts()
        for part in memory.scanning():
            part.engine = engine
        y, final = forward(memory, x, p.used_state(memory), start)
        by_engine[engine] = y.detach(), gradients(weighted(y, p, final), [x, *memory.parameters()])
    truth, truth_gradients = by_engine.pop("loop")
    for engine, (y, ours) in by_engine.items():
        yield same_outputs(f"outputs of {engine}", y, truth, start)
        yield same_gradients(f"of {engine}", ours, truth_gradients)


def float32_suffices(p: Probe) -> Iterator[Measurement]:
    """float32 gives what float64 gives, with the same weights."""
    x, start = p.inputs(dtype=torch.float32), p.starts()
    y, truth = (forward(p.memory(t), x.to(t), p.memory(t).initial_state(ROWS), start)[0] for t in EXACT)
    yield same_outputs("outputs", y.double(), truth, start, bound=1e-4)


def finite_gradients(p: Probe) -> Iterator[Measurement]:
    """One long episode in float32: outputs and gradients are finite, and not all gradients are zero."""
    for slots in p.long:
        memory = p.memory(torch.float32)
        x = p.inputs(rows=1, slots=slots, dtype=torch.float32).requires_grad_()
        y, _ = forward(memory, x, memory.initial_state(1), p.flags(1, slots))
        grads = gradients(y.square().mean(), [x, *memory.parameters()])
        yield finite(f"gradients through {slots:,} slots", grads)
        yield finite(f"outputs of {slots:,} slots", [y])
        dead = not any(g.any() for g in grads)
        yield Measurement(f"all gradients through {slots:,} slots are zero", float(dead))


def one_slot(p: Probe) -> Iterator[Measurement]:
    """Rows of one slot work, one of them or several."""
    memory = p.memory()
    for rows in (1, ROWS):
        x, state = p.inputs(rows, slots=1), p.used_state(memory, rows)
        for at in ([], [0]):
            start = p.flags(rows, 1, at)
            y, final = forward(memory, x, state, start)
            step, after = stepped(memory, x, state, start)
            yield same_outputs("outputs of one slot", y, step, start)
            yield Measurement("final state of one slot", distance(final, after), EXACT[torch.float64])


def state_round_trips(p: Probe) -> Iterator[Measurement]:
    """A state is plain tensors [B, ...] in the type of the parameters, the same after saving and loading, and no call
    writes into what it was given."""
    for dtype, bound in EXACT.items():
        memory, x, state, start = p.case(dtype)
        initial = memory.initial_state(ROWS)
        one_row = [s.shape[:1] != (1,) for s in tree_leaves(memory.initial_state(1))]
        yield Measurement("leaves without a leading dimension B", float(sum(one_row)))
        other = [s.real.dtype != dtype for s in tree_leaves(initial) if s.is_floating_point() or s.is_complex()]
        yield Measurement(f"leaves not in {dtype}, as the parameters are", float(sum(other)))
        copies = tree_map(torch.clone, (x, state, start))
        with torch.no_grad():
            y, final = forward(memory, x, state, start)
            _, after = memory.step(x[:, 0], state, start[:, 0])
        yield Measurement("change of what a call was given", distance((x, state, start), copies))
        yield Measurement("leaves that forward gave another shape, type or device", _unlike(final, initial))
        yield Measurement("leaves that step gave another shape, type or device", _unlike(after, initial))
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        yield same_outputs("outputs from a loaded state", forward(memory, x, loaded, start)[0], y, bound=bound)


def _unlike(ours: State, truth: State) -> float:
    (a, ours_spec), (b, truth_spec) = tree_flatten(ours), tree_flatten(truth)
    if ours_spec != truth_spec:
        return math.inf
    return float(sum((x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device) for x, y in zip(a, b, strict=True)))


def no_global_randomness(p: Probe) -> Iterator[Measurement]:
    """No call draws from a global generator or depends on one, also in training mode; two calls give the same."""
    memory, x, state, start = p.case()
    memory.train()

    def calls() -> Any:
        initial = memory.initial_state(ROWS)
        with torch.no_grad():
            return initial, memory(x, state, start), memory.step(x[:, 0], state, start[:, 0])

    before = _generators()
    first = calls()
    drawn = [name for name, now in _generators().items() if now != before[name]]
    yield Measurement(f"global generators drawn from: {', '.join(drawn) or 'none'}", float(len(drawn)))
    torch.rand(1)
    yield Measurement("difference of two calls", distance(calls(), first))


def _generators() -> dict[str, Any]:
    """The state of each global generator, comparable."""
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "torch.cuda": [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()],
        "numpy": (name, np.asarray(keys).tobytes(), *rest),
        "random": random.getstate(),
    }


def symbols_round_trip(p: Probe) -> Iterator[Measurement]:
    """`load_symbols(symbols())` carries every weight to a memory that had others; gradients have the same symbols."""
    memory, other, x, start = p.memory(), p.changed(p.memory()), p.inputs(), p.starts()
    weights = {symbol: weight.detach().clone() for symbol, weight in memory.symbols().items()}
    other.load_symbols(weights)
    yield Measurement("weights after loading", distance(list(other.parameters()), list(memory.parameters())))
    y, _ = forward(memory, x, memory.initial_state(ROWS), start)
    loaded, _ = forward(other, x, other.initial_state(ROWS), start)
    yield same_outputs("outputs after loading", loaded, y)
    shown = memory.symbols(torch.zeros_like)
    unlike = sum(shown[s].shape != w.shape if s in shown else 1 for s, w in weights.items())
    yield Measurement("symbols that `of` does not reach", float(unlike))
