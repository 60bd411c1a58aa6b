"""Train, resume and evaluate runs: the run directory, the loop, and what is said around them.

With `rlmem.assemble`, the only modules below the command line that know the configuration.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

import torch

from rlmem import rundir
from rlmem.agents.off_policy import OffPolicyAgent
from rlmem.algos.off_policy import OffPolicy
from rlmem.assemble import (
    Parts,
    all_cores,
    assemble,
    evaluation_node,
    make_evaluation_env,
    require_same_spaces,
    summary,
)
from rlmem.checkpoint import Checkpoints, read
from rlmem.config.compose import Config, apply
from rlmem.config.targets import build
from rlmem.errors import UserError
from rlmem.evaluate import evaluate, evaluate_both
from rlmem.loggers import RunInfo
from rlmem.loops.base import Loop, Schedule, one_thread
from rlmem.loops.off_policy import OffPolicyLoop
from rlmem.loops.on_policy import OnPolicyLoop
from rlmem.pictures import Watched, write_gif
from rlmem.progress import Progress
from rlmem.recorder import Logger, Recorder
from rlmem.replay import Replay
from rlmem.rollout import Collector
from rlmem.seeding import Streams

RESUMABLE = (
    "total_steps",
    "device",
    "threads",
    "checkpoint.*",
    "evaluation.*",
    "env.evaluation.*",
    "logger.*",
    "algo.replay_dir",
)
"""Keys that a resumed run may change: none of them changes what was learnt so far."""

EVAL_ENVS = 64
"""Environments that play evaluation episodes side by side, at most."""


def train(config: Config) -> float:
    """Run `config` in a new run directory; returns the greedy evaluation return at the end (a sweeper's objective).

    Raises UserError for choices that do not go together, before anything is written.
    """
    parts = assemble(config)
    run_dir = rundir.create(config.values["run_dir"], config.choices, config.values["seed"])
    with rundir.lock(run_dir):
        rundir.describe(run_dir, config.values, config.choices, config.overrides)
        return _run(config, parts, run_dir, restored=None)


def resume(run_dir: Path, overrides: Sequence[str]) -> float:
    """Continue the run in `run_dir` from its newest intact checkpoint, exactly where it was.

    overrides: `key=value` of RESUMABLE keys. Raises UserError for any other, if another process is training the run,
    or if every checkpoint is damaged.
    """
    values, about = rundir.read(run_dir)
    command = f"rlmem resume {run_dir} total_steps=2000000"
    _only(overrides, RESUMABLE, "would change the experiment; a resumed run accepts", command)
    config = apply(Config(values, about["choices"], tuple(about["overrides"])), overrides)
    with rundir.lock(run_dir):
        parts = assemble(config)
        restored = newest(run_dir) if Checkpoints(run_dir / "checkpoints").paths() else {}
        done, total = restored.get("collector", {"steps": 0})["steps"], config.values["total_steps"]
        if total < done:
            raise UserError(
                f"total_steps={total}: the run has taken {done} steps; expected at least as many; {command}"
            )
        rundir.describe_resumption(run_dir, config.values, config.overrides, done)
        return _run(config, parts, run_dir, restored)


def plan(config: Config) -> str:
    """The summary of a run that is not started; raises UserError as `train` does."""
    return summary(config, assemble(config), "nowhere: a dry run writes nothing")


def evaluate_run(
    run_dir: Path,
    episodes: int = 100,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    step: int | None = None,
    video: bool = False,
) -> dict[str, Any]:
    """Evaluate a run's agent on whole episodes, greedy and sampled, and append the result to <run>/eval.jsonl.

    The environment is the run's own with the keys of `env.evaluation` in place, as in evaluations while it trained.

    seed: root of the evaluation's own streams; None: one that follows from the run's seed
    overrides: `env.*` keys, such as another level, that leave the spaces as they are, and `device`; they win over
        `env.evaluation`
    step: which checkpoint; None: the newest intact one
    video: also write an animation of one greedy episode, <run>/videos/step_<n>.gif
    """
    values, about = rundir.read(run_dir)
    command = f"rlmem eval {run_dir} env.level=medium"
    _only(overrides, ("env.*", "device"), "cannot be evaluated differently; evaluation accepts", command)
    trained = Config(values, about["choices"], tuple(about["overrides"]))
    config = apply(trained, overrides)
    parts = assemble(Config(values | {"device": config.values["device"]}, trained.choices, ()), num_envs=1)
    checkpoint = newest(run_dir) if step is None else _checkpoint(run_dir, step)
    with fitting(run_dir):
        parts.agent.load_state_dict(checkpoint["agent"])
    keys = [override.lstrip("+").partition("=")[0].split(".") for override in overrides]
    given = {key[1] for key in keys if key[0] == "env"}
    env = make_evaluation_env(config, min(episodes, EVAL_ENVS), given)
    require_same_spaces(config, parts.env, env, " ".join(overrides))
    # A root of its own: these are not the episodes that were played during training.
    seed = Streams(values["seed"]).int("rlmem eval") if seed is None else seed
    taken = checkpoint["collector"]["steps"]
    film = {}
    with one_thread():
        if video:  # first, since it may turn out that this environment cannot be drawn
            path = run_dir / "videos" / f"step_{taken}.gif"
            with closing(Watched(make_evaluation_env(config, 1, given))) as watched:
                evaluate(parts.agent, watched, 1, True, Streams(seed), parts.device)
                write_gif(watched.frames, path, watched.metadata.get("render_fps", 5))
            film = {"video": str(path)}
        results = evaluate_both(parts.agent, env, episodes, Streams(seed), parts.device)
    env.close()
    parts.env.close()
    row = {
        "run": str(run_dir),
        "step": taken,
        "episodes": episodes,
        "seed": seed,
        "env": evaluation_node(config, given),
        **results,
        **film,
    }
    try:
        with open(run_dir / "eval.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        print(f"the result is not kept: {run_dir / 'eval.jsonl'} cannot be written ({error.strerror})")
    return row


def _only(overrides: Sequence[str], accepted: Sequence[str], reason: str, command: str) -> None:
    """Refuse overrides of keys outside `accepted`."""
    problems = [
        f"{override}: {reason} {', '.join(accepted)}; e.g. {command}"
        for override in overrides
        if not any(fnmatch(override.lstrip("+~").split("=")[0], pattern) for pattern in accepted)
    ]
    if problems:
        raise UserError(*problems)


def newest(run_dir: Path) -> dict[str, Any]:
    """The newest intact checkpoint of a run. Raises UserError if there is none."""
    try:
        return Checkpoints(run_dir / "checkpoints").load()[1]
    except FileNotFoundError as error:
        raise UserError(f"{run_dir}: {error}; expected one that `rlmem train` wrote; start a new run") from error


@contextmanager
def fitting(run_dir: Path) -> Iterator[None]:
    """An intact checkpoint with other parts than this version's becomes a UserError."""
    try:
        yield
    except (RuntimeError, KeyError) as error:
        raise UserError(
            f"{run_dir}: its checkpoint was written by another version of rlmem ({str(error).splitlines()[0]}); "
            f"expected one of this version; start a new run"
        ) from error


def _checkpoint(run_dir: Path, step: int) -> dict[str, Any]:
    steps = {int(p.stem.removeprefix("step_")): p for p in Checkpoints(run_dir / "checkpoints").paths()}
    if step not in steps:
        raise UserError(f"--step {step}: no such checkpoint; accepted: {', '.join(map(str, steps)) or 'none yet'}")
    try:
        return read(steps[step])
    except ValueError as error:
        raise UserError(f"--step {step}: {error}") from error


def _run(config: Config, parts: Parts, run_dir: Path, restored: dict[str, Any] | None) -> float:
    """Train in `run_dir`; restored: None for a new run, else the checkpoint to continue from ({}: from the start)."""
    values = config.values
    torch.set_num_threads(values["threads"] or all_cores())
    begin = restored["collector"]["steps"] if restored else 0
    with Progress(values["total_steps"], run_dir / "log.txt", begin) as progress, closing(parts.env):
        progress.say(summary(config, parts, str(run_dir)))
        loggers = make_loggers(config, run_dir, None if restored is None else begin, progress)
        recorder = Recorder(run_dir, loggers, progress.say)
        failed = True
        try:
            loop = make_loop(config, parts, run_dir, recorder, progress)
            if restored:
                with fitting(run_dir):
                    loop.load_state_dict(restored)
                restored.clear()  # a replay in it need not be held twice
                progress.say(f"resumed at step {begin}")
            elif restored is not None:
                recorder.rewind({"metrics": 0, "episodes": 0})
                progress.say("no checkpoint yet: starting from the beginning")
            with stopping_politely(loop):
                results = loop.run()
            failed = False
        except BaseException as error:
            progress.say(f"{_how_it_ended(error)}; {last_checkpoint(run_dir)}")
            raise
        finally:
            recorder.close(failed)
        progress.say(last_words(run_dir, loop, results))
    return results["greedy"]["return_mean"]


def _how_it_ended(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    return f"failed: {'; '.join(error.problems) if isinstance(error, UserError) else repr(error)}"


class Stopped(KeyboardInterrupt):
    """A signal asked for the end and the state has been saved; `code` is the exit code."""

    def __init__(self, signum: int):
        super().__init__(f"stopped by signal {signum}")
        self.code = 128 + signum


@contextmanager
def stopping_politely(loop: Loop) -> Iterator[None]:
    """Let SIGINT and SIGTERM save a checkpoint after the present update or round; a second one stops at once."""

    def handle(signum: int, frame: Any) -> None:
        if loop.stop is not None:
            raise Stopped(signum)
        loop.stop = Stopped(signum)
        # Not through `progress`: a signal may interrupt a write to the same stream, which must not be re-entered.
        os.write(2, b"rlmem: saving, then stopping (once more: at once)\n")

    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def last_checkpoint(run_dir: Path) -> str:
    """Where a run that ended early can go on."""
    paths = Checkpoints(run_dir / "checkpoints").paths()
    if not paths:
        return f"there is no checkpoint yet; `rlmem resume {run_dir}` starts from the beginning"
    step = int(paths[-1].stem.removeprefix("step_"))
    return f"saved up to step {step}; continue with    rlmem resume {run_dir}"


def make_loop(config: Config, parts: Parts, run_dir: Path, recorder: Recorder, progress: Progress) -> Loop:
    values, streams = config.values, parts.streams
    collector = Collector(parts.env, parts.agent, streams.int("env"), streams.torch("act", parts.device), parts.device)
    shared: dict[str, Any] = {
        "total_steps": values["total_steps"],
        "agent": parts.agent,
        "batching": parts.batching,
        "collector": collector,
        "make_eval_env": lambda: make_evaluation_env(config, min(values["evaluation"]["episodes"], EVAL_ENVS)),
        "evaluation": Schedule(values["evaluation"]["every"]),
        "evaluation_episodes": values["evaluation"]["episodes"],
        "streams": streams,
        "recorder": recorder,
        "checkpoints": Checkpoints(run_dir / "checkpoints", values["checkpoint"]["keep"]),
        "checkpoint": Schedule(values["checkpoint"]["every"]),
        "progress": progress,
    }
    algo: Any = parts.algo
    if isinstance(algo, OffPolicy):
        algo.setup(cast(OffPolicyAgent, parts.agent), streams.torch("losses", parts.device))
        return OffPolicyLoop(algo=algo, replay=make_replay(parts), generator=streams.torch("replay"), **shared)
    algo.setup(parts.agent, streams.torch("rows"))
    return OnPolicyLoop(algo=algo, **shared)


def make_replay(parts: Parts) -> Replay:
    """An empty replay; it keeps memory states if rows will begin with them."""
    algo = cast(OffPolicy, parts.algo)
    stores = parts.batching.state_slots(replay=True) is not None
    parts.agent.trunks.step_all = stores
    return Replay(
        algo.capacity,
        parts.env.num_envs,
        parts.device,
        algo.priority_exponent,
        algo.importance_exponent,
        directory=None if algo.replay_dir is None else Path(algo.replay_dir),
        initial_state=parts.agent.initial_state(1) if stores else None,
    )


def make_loggers(config: Config, run_dir: Path, step: int | None, progress: Progress) -> list[tuple[str, Logger]]:
    """The chosen mirrors; one that cannot start is said and left out."""
    run = RunInfo(run_dir.name, config.values, step)
    loggers: list[tuple[str, Logger]] = []
    for name, node in config.values["logger"].items():
        if "_target_" not in node:
            continue
        try:
            logger = build(node, run_dir=run_dir, run=run)
        except Exception as error:  # a mirror must never stop a run, whatever its library raises
            progress.say(f"logger={name} could not start: {error}; the run goes on, metrics.jsonl is complete")
            continue
        if note := getattr(logger, "note", None):
            progress.say(note)
        loggers.append((name, logger))
    return loggers


def last_words(run_dir: Path, loop: Loop, results: dict[str, dict[str, float]]) -> str:
    """The result and what one may do next."""
    scores = ", ".join(f"{name} {r['return_mean']:.3f} ± {r['return_sem']:.3f}" for name, r in results.items())
    return "\n".join(
        [
            f"done: {loop.collector.steps:,} steps, {loop.updates:,} updates in {loop.elapsed:.0f} s",
            f"  mean evaluation return: {scores} ({loop.evaluation_episodes} episodes each)",
            f"  results lie in   {run_dir}",
            f"  evaluate         rlmem eval {run_dir}",
            f"  train longer     rlmem resume {run_dir} total_steps={2 * loop.total_steps}",
        ]
    )
