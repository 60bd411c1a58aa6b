"""From the parts of a run to its loop, the record of what the loop does, and what is said at its end."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from rlmem.agents.actor_critic import Agent
from rlmem.config.compose import Config
from rlmem.config.messages import shell
from rlmem.errors import Fault, UserError
from rlmem.loops.base import Loop
from rlmem.loops.callbacks import Callback
from rlmem.loops.evaluation import Evaluations, result_text
from rlmem.loops.parts import Output, Training
from rlmem.nets.graphs import Graphs
from rlmem.record.checkpoint import step_of
from rlmem.record.recorder import Progress, Recorder
from rlmem.run.assemble import Parts, assemble
from rlmem.run.build import EVAL_ENVS, make_evaluation_env
from rlmem.run.stored import checkpoints, experiment_of
from rlmem.types import processes


class Silent:
    """Recorder, checkpoints and progress of a process that writes nothing: every method does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


SILENT: Any = Silent()


def make_loop(
    config: Config,
    parts: Parts,
    run_dir: Path | None,
    recorder: Recorder,
    progress: Progress,
    callbacks: Mapping[str, Callback] | None = None,
) -> Loop:
    """The loop of this process, which writes nothing if `run_dir` is None. Raises UserError."""
    settings = config.settings
    if (devices := settings.trainer.devices) != processes().size:
        what = "only `rlmem train` and `rlmem resume` train one run in several processes"
        raise UserError(f"trainer.devices={devices}: {what}; e.g. trainer.devices=1")
    if settings.compile != "off":
        parts.agent.record_by(Graphs(progress.say))
    training = Training(
        total_steps=settings.total_steps,
        agent=parts.agent,
        env=parts.env,
        num_envs=parts.num_envs,
        make_actor=partial(_make_actor, config),
        device=parts.device,
        batching=parts.batching,
        streams=parts.streams,
        on_nan=settings.on_nan,
    )
    evaluations = Evaluations(
        every=settings.evaluation.every,
        episodes=settings.evaluation.episodes,
        max_steps=settings.evaluation.max_steps,
        stop_at=settings.evaluation.stop_at,
        make_env=lambda number: make_evaluation_env(config, min(number, EVAL_ENVS)),
        streams=parts.streams,
        device=parts.device,
        say=progress.say,
        film_every=None if run_dir is None else settings.evaluation.video_every,
        run_dir=run_dir or Path(),
    )
    output = Output(
        recorder=recorder,
        progress=progress,
        checkpoints=SILENT if run_dir is None else checkpoints(run_dir, settings.checkpoint.keep),
        checkpoint_every=settings.checkpoint.every,
        experiment=experiment_of(config.values),
        callbacks=callbacks or {},
    )
    return parts.algo.loop(parts.algo, training, evaluations, output)


def _make_actor(config: Config) -> tuple[VectorEnv, Agent]:
    """The environments of an actor in another process, and its agent, which acts on the CPU."""
    parts = assemble(
        replace(config, values=config.values | {"device": "cpu", "compile": "off", "precision": "float32"})
    )
    return parts.env, parts.agent


@contextmanager
def recorded(run_dir: Path, progress: Progress) -> Iterator[Recorder]:
    """The record of a run, which is closed at the end.

    If the run ends early, its log says why and how to continue. A Fault or a UserError, which is printed, says so, too.
    """
    recorder, failed = Recorder(run_dir, progress.say), True
    try:
        yield recorder
        failed = False
    except (Fault, UserError) as error:
        *first, last = error.problems if isinstance(error, UserError) else (str(error),)
        problems = [*first, f"{last}; {_how_to_continue(run_dir)}"]
        progress.note(f"failed: {'; '.join(problems)}")
        if isinstance(error, Fault):
            raise Fault(problems[0], error.traceback) from error
        raise UserError(*problems) from error
    except BaseException as error:
        reason = "stopped" if isinstance(error, KeyboardInterrupt) else f"failed: {error!r}"
        progress.say(f"{reason}; {_how_to_continue(run_dir)}")
        raise
    finally:
        recorder.close(failed)


def _how_to_continue(run_dir: Path) -> str:
    paths, command = checkpoints(run_dir).paths(), f"rlmem resume {shell(run_dir)}"
    if not paths:
        return f"there is no checkpoint yet; `{command}` starts from the beginning"
    return f"saved up to step {step_of(paths[-1])}; continue with    {command}"


def conclusion(run_dir: Path, loop: Loop) -> str:
    """The result of a run that reached its end, and what may be done next."""
    stop_at, episodes = loop.evaluations.stop_at, loop.evaluations.episodes
    early = f" (of {loop.total_steps:,}: evaluation.stop_at={stop_at:g} is reached)" if loop.ends_early else ""
    longer = "evaluation.stop_at=null" if early else f"total_steps={2 * loop.total_steps}"
    sample = f"{episodes} episodes each; ± is the standard error of the mean"
    if "held_out" in loop.last_evaluation:
        sample = f"{episodes:,} {loop.algo.answers}"
    return f"""\
done: {loop.collector.steps:,} steps{early}, {loop.updates:,} updates in {loop.elapsed:.0f} s
  mean evaluation {result_text(loop.last_evaluation)} ({sample})
  results lie in   {run_dir}
  evaluate         rlmem eval {shell(run_dir)}
  train longer     rlmem resume {shell(run_dir)} {longer}"""
