"""Exporting the agent of a run: the file, the check against the agent itself, and the card beside it."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_leaves

from rlmem.api.exporting.card import Card, write_card
from rlmem.api.exporting.portable import Portable
from rlmem.api.exporting.step import ActingStep
from rlmem.api.runs import Run
from rlmem.api.trained import ActingState, TrainedAgent
from rlmem.errors import Fault, UserError, extra, one_line, writing
from rlmem.loops.base import one_thread

Format = Literal["onnx", "torch"]
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
OPSET = 18
"""The version of ONNX's operators that is written."""
STEPS, ENVS = 256, 8
"""Steps and environments over which a file is compared with the agent."""
LARGEST = 1e-3
"""The deviation, relative to numbers above 1, from which on a file is not kept."""
TIMED = 200
"""Calls at batch 1, of which the median time counts."""

Numbers = dict[str, np.ndarray]
Call = Callable[[Numbers], list[np.ndarray]]
"""Runs a written file: named inputs to the outputs in their order."""


class Exported(NamedTuple):
    """What was written.

    path: the file
    card: what its card says
    """

    path: Path
    card: Card


class Deviation(NamedTuple):
    """How far a file was from the agent.

    largest: the largest difference of a state or a continuous action, divided by its size where that is above 1
    actions: discrete actions that differed, of how many
    """

    largest: float
    actions: int
    of: int


def export(
    run: Run,
    format: Format = "onnx",
    which: int | str | None = None,
    out: Path | None = None,
    episodes: int = 100,
    license: str | None = None,
) -> Exported:
    """Write the acting step of a run's agent to one file, check it against the agent, and write a card beside it.

    format: onnx, or torch for what `torch.export.load` reads
    which: as for `Run.agent`
    out: the file; None: RUN/export/agent.onnx or agent.pt2
    episodes: those that the card's returns are over
    license: what the card says of the licence of the weights

    Raises UserError, which names the operator, for an agent that the format cannot hold; and Fault if what was written
    departs from the agent, which is then not kept.
    """
    path = out or run.path / "export" / f"agent{SUFFIXES[format]}"
    agent, row = run.agent(which), run.evaluate(episodes, which=which, device="cpu")
    step = ActingStep(agent)
    write = _write_onnx if format == "onnx" else _write_torch
    with one_thread(), writing(path, "--out /tmp/agent.onnx"):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        try:
            call = write(_traced(step, agent), step, partial)
            deviation = compare(run, agent, step, call)
            if not deviation.largest <= LARGEST:
                what = f"departs from the agent by {deviation.largest:.1e} within {STEPS} steps"
                raise Fault(f"{path}: {what}; it is not kept; please report this")
            seconds = _seconds(call, _numbers(step.examples(agent, 1)))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    inputs = step.examples(agent, 2)
    outputs = dict(zip(step.outputs, step(*inputs.values()), strict=True))
    card = Card(
        format=format,
        opset=OPSET if format == "onnx" else None,
        step=agent.step,
        license=license,
        evaluation=row,
        inputs={name: _described(value) for name, value in inputs.items()},
        outputs={name: _described(value) for name, value in outputs.items()},
        compared={"steps": STEPS, "environments": ENVS, **deviation._asdict()},
        milliseconds=1000 * seconds,
    )
    write_card(run, path, card)
    return Exported(path, card)


def compare(run: Run, agent: TrainedAgent, step: ActingStep, call: Call) -> Deviation:
    """Play with the agent, show the file the same slots, with a state of its own, and compare what both do."""
    largest, different, discrete = 0.0, 0, "int" in str(agent.action_space.dtype)
    with closing(run.make_env(ENVS)) as env:
        obs, _ = env.reset(seed=0)
        own, state = _numbers(step.examples(agent, ENVS)), agent.initial_state(ENVS)
        reward, start, ended = np.zeros(ENVS, np.float32), np.ones(ENVS, bool), np.zeros(ENVS, bool)
        for _ in range(STEPS):
            action, state = agent.act(obs, state, start=start, reward=reward)
            slot = {"obs": np.asarray(obs, agent.observation_space.dtype), "start": start, "reward": reward}
            did, *after = call(own | slot)
            own = dict(zip(step.names, after, strict=True))
            if discrete:
                different += int((did != action).sum())
            pairs = [*zip(after[1:], _leaves(state), strict=True), *([] if discrete else [(did, action)])]
            largest = max([largest, *(_apart(*pair) for pair in pairs)])
            start = ended
            obs, earned, terminated, truncated, _ = env.step(action)
            reward, ended = np.asarray(earned, np.float32), terminated | truncated
    return Deviation(largest, different, STEPS * ENVS if discrete else 0)


def _leaves(state: ActingState) -> list[np.ndarray]:
    """What the actor's memory holds, complex numbers as pairs."""
    leaves = tree_leaves(state.memory[0])
    return [(torch.view_as_real(leaf) if leaf.is_complex() else leaf).cpu().numpy() for leaf in leaves]


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to numbers above 1; infinite where one is no number and the other is."""
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return float("inf")
    finite = np.isfinite(expected)
    found, expected = found[finite].astype(np.float64), expected[finite].astype(np.float64)
    return float((np.abs(found - expected) / np.maximum(1, np.abs(expected))).max(initial=0))


def _traced(step: ActingStep, agent: TrainedAgent) -> ExportedProgram:
    """The step as a graph for any number of environments."""
    inputs = list(step.examples(agent, 3).values())
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(step, tuple(inputs), dynamic_shapes=_any_batch(inputs, 4), strict=False)
            real = torch.export.export(
                Portable(program.run_decompositions() if any(d.is_complex for d in step.dtypes) else program),
                tuple(inputs),
                dynamic_shapes=(tuple({0: Dim.DYNAMIC} for _ in inputs),),
                strict=False,
            )
            return real
    except UserError:
        raise
    except Exception as error:  # of many kinds, of whatever torch cannot trace
        raise UserError(f"cannot be exported: {one_line(error)}") from error


def _any_batch(inputs: list[Tensor], named: int) -> tuple[Any, ...]:
    """The first dimension of every input is free; those after the first `named` are one tuple, if there are any."""
    free = [{0: Dim.DYNAMIC} for _ in inputs]
    return (*free[:named], *([tuple(free[named:])] if free[named:] else []))


def _write_onnx(program: ExportedProgram, step: ActingStep, path: Path) -> Call:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise UserError(f"--format onnx: {error.name} is not installed; e.g. {extra('export')}") from error
    try:
        with _quiet():
            made = torch.onnx.export(
                program, (), dynamo=True, verbose=False, opset_version=OPSET,
                input_names=step.inputs, output_names=step.outputs,
            )  # fmt: skip
            assert made is not None
            made.save(path, external_data=False)
    except Exception as error:  # of many kinds, of operators that ONNX lacks
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise UserError(f"--format onnx: cannot be exported: {reason}; e.g. --format torch") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(step.outputs, {name: inputs[name] for name in step.inputs})


def _write_torch(program: ExportedProgram, step: ActingStep, path: Path) -> Call:
    with open(path, "wb") as file, _quiet():
        torch.export.save(program, file)
    module = torch.export.load(io.BytesIO(path.read_bytes())).module()

    @torch.no_grad()
    def call(inputs: Numbers) -> list[np.ndarray]:
        found = module(*(torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in step.inputs))
        return [cast(Tensor, value).numpy() for value in found]

    return call


def _seconds(call: Call, inputs: Numbers) -> float:
    """The median time of a call."""
    taken = []
    for _ in range(TIMED):
        began = perf_counter()
        call(inputs)
        taken.append(perf_counter() - began)
    return median(taken)


def _numbers(inputs: dict[str, Tensor]) -> Numbers:
    return {name: value.numpy() for name, value in inputs.items()}


def _described(value: Tensor) -> dict[str, Any]:
    return {"type": str(value.dtype).removeprefix("torch."), "shape": ["N", *value.shape[1:]]}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters print."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
