"""From the parts of a run to its loop, which collects, learns, evaluates and saves."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from rlmem.agents.base import Agent
from rlmem.config.compose import Config
from rlmem.errors import UserError
from rlmem.loops.base import Loop
from rlmem.loops.parts import LoopParts
from rlmem.parallel import place
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.run.assemble import Parts, assemble
from rlmem.run.environments import EVAL_ENVS, make_evaluation_env
from rlmem.run.experiment import experiment_of
from rlmem.run.stored import checkpoints


class Silent:
    """Recorder, checkpoints and progress of a process that writes nothing: every method does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


SILENT: Any = Silent()


def make_loop(config: Config, parts: Parts, run_dir: Path | None, recorder: Recorder, progress: Progress) -> Loop:
    """The loop of this process, which writes nothing if `run_dir` is None. Raises UserError."""
    settings = config.settings
    if (devices := settings.trainer.devices) != place().size:
        what = "only `rlmem train` and `rlmem resume` train one run in several processes"
        raise UserError(f"trainer.devices={devices}: {what}; e.g. trainer.devices=1")
    kept = SILENT if run_dir is None else checkpoints(run_dir, settings.checkpoint.keep)
    episodes = settings.evaluation.episodes
    return parts.algo.make_loop(
        LoopParts(
            total_steps=settings.total_steps,
            agent=parts.agent,
            env=parts.env,
            num_envs=parts.num_envs,
            make_actor=partial(_make_actor, config),
            device=parts.device,
            batching=parts.batching,
            streams=parts.streams,
            on_nan=settings.on_nan,
            make_eval_env=lambda: make_evaluation_env(config, min(episodes, EVAL_ENVS)),
            evaluation_every=settings.evaluation.every,
            evaluation_episodes=episodes,
            evaluation_steps=settings.evaluation.max_steps,
            recorder=recorder,
            checkpoints=kept,
            checkpoint_every=settings.checkpoint.every,
            progress=progress,
            experiment=experiment_of(config.values),
        )
    )


def _make_actor(config: Config) -> tuple[VectorEnv, Agent]:
    """The environments of an actor in another process, and its agent, which acts on the CPU."""
    parts = assemble(replace(config, values=config.values | {"device": "cpu"}))
    return parts.env, parts.agent
