"""Exporting the agent of a run: the file, the check against the agent itself, and the card beside it."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import median
from timeit import repeat
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_leaves

from rlmem.acting.collector import one_thread
from rlmem.acting.workers import closing
from rlmem.core.errors import Fault, UserError, extra, lacks_memory, one_line, writing
from rlmem.core.spaces import in_env, is_tree
from rlmem.run.nodes import make_evaluation_env
from rlmem.run.stored import stored_config
from rlmem.run.trained import TrainedAgent, open_agent
from rlmem.share.card import evaluated, facts_of, write_card
from rlmem.share.portable import FIXED, ActingStep, Portable

Format = Literal["onnx", "torch"]
OPSET = 18
"""The version of ONNX's operators that is written."""
STEPS, ENVS, STARTS = 256, 8, 0.05
"""Steps and environments over which a file is compared with the agent, and the chance that it is told of a start."""
TOLERANCE, TIES = 1e-3, 0.01
"""The largest deviation, relative to numbers above 1, of a file that is kept, and the largest share of actions that
differ between two that are equally good."""
SORTS = (torch.ops.aten.sort.default, torch.ops.aten.sort.stable, torch.ops.aten.argsort.default)
TIMED = 200
"""Calls for one environment, of which the median time counts."""

Numbers = dict[str, np.ndarray]
Call = Callable[[Numbers], list[np.ndarray]]
"""Runs a written file: named inputs to the outputs in their order."""


class Deviation(NamedTuple):
    """How far a file was from the agent.

    largest: the largest difference of a score, a state or a continuous action, relative to numbers above 1
    actions: discrete actions that differed
    of: how many there were
    """

    largest: float
    actions: int
    of: int


def export(
    run_dir: Path,
    trust: bool = False,
    format: Format = "onnx",
    which: int | str | None = None,
    out: Path | None = None,
    episodes: int = 100,
    license: str | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write the acting step of a run's agent to one file, check it against the agent, and write a card beside it.

    trust: accept a configuration that another user wrote or edited
    format: onnx, or torch for what `torch.export.load` reads
    which: as for `Run.agent`
    out: the file; None: RUN/export/agent.onnx or agent.pt2
    episodes: those that the card's returns are over
    license: what the card says of the licence of the weights

    Returns the file and the facts of its card. Raises UserError, which names the operator, for an agent that the format
    cannot hold; and Fault if what was written departs from the agent, which is then not kept.
    """
    write, suffix = {"onnx": (_write_onnx, ".onnx"), "torch": (_write_torch, ".pt2")}[format]
    path = out or run_dir / "export" / f"agent{suffix}"
    agent = open_agent(run_dir, which, trust=trust)
    if not agent.network.reads_slots:
        problem = "its agent reads the last slots of an episode again at every step, which no export holds"
        raise UserError(f"{run_dir}: {problem}; e.g. rlmem.load({str(run_dir)!r}) in Python")
    if is_tree(agent.observation_space):
        problem = "its observations have several parts or action masks, and an exported step takes one array"
        raise UserError(f"{run_dir}: {problem}; e.g. rlmem.load({str(run_dir)!r}) in Python")
    step = ActingStep(agent)
    partial = path.with_name(f"{path.name}.unchecked")
    with one_thread(), writing(path, "--out /tmp/agent.onnx"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            program = _traced(step, agent)
            call = write(program, step, partial)
            env = make_evaluation_env(stored_config(run_dir, trust=trust), ENVS)
            deviation = compare(env, agent, step, call)
            _require_alike(path, program, deviation)
            one = _numbers(step.examples(agent, 1))
            seconds = median(repeat(lambda: call(one), number=1, repeat=TIMED))
            row = evaluated(run_dir, trust, agent, which, episodes)
            inputs = step.examples(agent, 2)
            with torch.no_grad():
                outputs = dict(zip(step.outputs, step(*inputs.values()), strict=True))
            facts = {
                "file": path.name,
                "format": format,
                "opset": OPSET if format == "onnx" else None,
                "inputs": {name: _described(value) for name, value in inputs.items()},
                "outputs": {name: _described(value) for name, value in outputs.items()},
                "compared": {"steps": STEPS, "environments": ENVS, **deviation._asdict()},
                "milliseconds": 1000 * seconds,
                **facts_of(run_dir, agent.step, row, license),
            }
            write_card(path, facts)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path, facts


def compare(env: VectorEnv, agent: TrainedAgent, step: ActingStep, call: Call) -> Deviation:
    """Play with the agent and show the file the same slots, with a state of its own; also starts within episodes.

    Where an episode begins, what the file's state holds is overwritten by numbers that must not matter. An action of a
    Box must be the one that the file's own policy action stands for: a rounding of that may be another whole number.
    """
    largest, different, rng = 0.0, 0, np.random.default_rng(0)
    discrete = not isinstance(agent.action_space, spaces.Box)
    with closing(env):
        obs, _ = env.reset(seed=0)
        own, state = _numbers(step.examples(agent, ENVS)), agent.initial_state(ENVS)
        reward, begins, ended = np.zeros(ENVS, np.float32), np.ones(ENVS, bool), np.zeros(ENVS, bool)
        for _ in range(STEPS):
            start = begins | (rng.random(ENVS) < STARTS)
            action, state = agent.act(obs, state, start=start, reward=reward)
            for value in own.values():
                value[start] = np.nan if value.dtype.kind == "f" else 1
            slot = {"obs": np.asarray(obs, agent.observation_space.dtype), "start": start, "reward": reward}
            did, scores, prev_action, *memory = call(own | slot)
            with torch.no_grad():
                expected = step(*(torch.from_numpy((own | slot)[name]) for name in step.inputs))
            leaves = [leaf.cpu().numpy() for leaf in tree_leaves(state.memory[0])]
            pairs = [(scores, expected[1].numpy())]
            for output, leaf in zip(memory, leaves, strict=True):
                pairs.append((output[..., 0] + 1j * output[..., 1] if leaf.dtype.kind == "c" else output, leaf))
            same = did == action
            if discrete:
                different += int((~same).sum())
                same = same.reshape(ENVS, -1).all(1)
            else:
                pairs.append((did, in_env(agent.action_space)(torch.from_numpy(prev_action)).numpy()))
                same = np.ones(ENVS, bool)
            before = state.prev_action.cpu().numpy()  # goes on as the agent does where another action is as good
            largest = max([largest, deviation(prev_action[same], before[same]), *(deviation(*pair) for pair in pairs)])
            own = {name: value.copy() for name, value in zip(step.names, [before, *memory], strict=True)}
            begins = ended
            obs, earned, terminated, truncated, _ = env.step(action)
            reward, ended = np.asarray(earned, np.float32), terminated | truncated
    return Deviation(largest, different, STEPS * action.size if discrete else 0)


def deviation(output: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to numbers above 1; infinite for other shapes, infinities or NaNs."""
    if output.shape != expected.shape:
        return float("inf")
    finite = np.isfinite(output) & np.isfinite(expected)
    if not np.array_equal(output[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    output, expected = output[finite].astype(np.complex128), expected[finite].astype(np.complex128)
    return float((np.abs(output - expected) / np.maximum(1, np.abs(expected))).max(initial=0))


def _require_alike(path: Path, program: ExportedProgram, deviation: Deviation) -> None:
    """Raise Fault for a file that departs from the agent, or UserError where that is because it sorts."""
    wrong = []
    if not deviation.largest <= TOLERANCE:
        wrong.append(f"by {deviation.largest:.1e}")
    if deviation.actions > TIES * deviation.of:
        wrong.append(f"in {deviation.actions} of {deviation.of} actions")
    if wrong:
        problem = f"departs from the agent {' and '.join(wrong)} within {STEPS} steps"
        if sorts := [node.target for node in program.graph.nodes if node.target in SORTS]:
            why = f"{sorts[0]} puts numbers that are nearly equal in the order of their rounding"
            raise UserError(f"cannot be exported: {problem}, since {why}; e.g. another seed or checkpoint")
        raise Fault(f"{path}: {problem}; it is not kept; please report this")


def _traced(step: ActingStep, agent: TrainedAgent) -> ExportedProgram:
    """The step as a graph of real numbers, for any number of environments."""
    inputs = tuple(step.examples(agent, 3).values())
    free = [{0: Dim.DYNAMIC} for _ in inputs]
    fixed, memory = free[: len(FIXED)], tuple(free[len(FIXED) :])
    try:
        with torch.no_grad(), _quiet():
            traced = torch.export.export(
                step, inputs, dynamic_shapes=(*fixed, *([memory] * bool(memory))), strict=False
            )
            if any(dtype.is_complex for dtype in step.dtypes):
                traced = traced.run_decompositions()
            return torch.export.export(Portable(traced), inputs, dynamic_shapes=(tuple(free),), strict=False)
    except (UserError, OSError):
        raise
    except Exception as error:  # of many kinds, of whatever torch cannot trace
        if lacks_memory(error):
            raise
        raise UserError(f"cannot be exported: {one_line(error)}") from error


def _write_onnx(program: ExportedProgram, step: ActingStep, path: Path) -> Call:
    """Write a traced step as ONNX; returns what runs that file."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise UserError(f"--format onnx: {error.name} is not installed; e.g. {extra('export')}") from error
    names: dict[str, Any] = {"input_names": step.inputs, "output_names": step.outputs}
    try:
        with _quiet():
            model = torch.onnx.export(program, (), dynamo=True, verbose=False, opset_version=OPSET, **names)
    except torch.onnx.errors.OnnxExporterError as error:
        reason = one_line(error.__cause__ or error)
        raise UserError(f"--format onnx: cannot be exported: {reason}; e.g. --format torch") from error
    assert model is not None
    model.save(path, external_data=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(step.outputs, {name: inputs[name] for name in step.inputs})


def _write_torch(program: ExportedProgram, step: ActingStep, path: Path) -> Call:
    """Write a traced step as a file of `torch.export`; returns what runs that file."""
    with open(path, "wb") as file, _quiet():
        torch.export.save(program, file)
    module = torch.export.load(io.BytesIO(path.read_bytes())).module()

    @torch.no_grad()
    def call(inputs: Numbers) -> list[np.ndarray]:
        results = module(*(torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in step.inputs))
        return [cast(Tensor, value).numpy() for value in results]

    return call


def _numbers(inputs: dict[str, Tensor]) -> Numbers:
    return {name: value.numpy() for name, value in inputs.items()}


def _described(value: Tensor) -> dict[str, Any]:
    return {"type": str(value.dtype).removeprefix("torch."), "shape": ["N", *value.shape[1:]]}


@contextmanager
def _quiet() -> Iterator[None]:
    """Within, what the exporters print and warn of is dropped."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
