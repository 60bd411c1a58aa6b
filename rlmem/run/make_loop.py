"""From the parts of a run to its loop: what collects, learns, evaluates and saves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from gymnasium.vector import VectorEnv

from rlmem.agents.actor_critic import ActorCritic
from rlmem.config.compose import Config
from rlmem.errors import UserError
from rlmem.loops.base import Loop
from rlmem.loops.parts import LoopParts, Schedule
from rlmem.parallel import place
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.run.assemble import EVAL_ENVS, Parts, assemble, make_evaluation_env, max_steps
from rlmem.run.restore import experiment_of


class Silent:
    """What a process that writes nothing has in the place of recorder, checkpoints and progress."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def make_loop(config: Config, parts: Parts, run_dir: Path | None, recorder: Recorder, progress: Progress) -> Loop:
    """The loop of this process; run_dir: None for one that writes nothing."""
    values = config.values
    if (devices := values["trainer"]["devices"]) != place().size:
        what = "only `rlmem train` and `rlmem resume` train one run in several processes"
        raise UserError(f"trainer.devices={devices}: {what}; e.g. trainer.devices=1")
    keep = values["checkpoint"]["keep"]
    checkpoints: Any = Silent() if run_dir is None else Checkpoints(run_dir / "checkpoints", keep)
    return parts.algo.make_loop(
        LoopParts(
            total_steps=values["total_steps"],
            agent=parts.agent,
            env=parts.env,
            num_envs=parts.num_envs,
            make_actor=partial(_acting, config),
            device=parts.device,
            batching=parts.batching,
            streams=parts.streams,
            on_nan=values["on_nan"],
            make_eval_env=lambda: make_evaluation_env(config, min(values["evaluation"]["episodes"], EVAL_ENVS)),
            evaluation=Schedule(values["evaluation"]["every"]),
            evaluation_episodes=values["evaluation"]["episodes"],
            evaluation_steps=max_steps(values),
            recorder=recorder,
            checkpoints=checkpoints,
            checkpoint=Schedule(values["checkpoint"]["every"]),
            progress=progress,
            experiment=experiment_of(values),
        )
    )


def _acting(config: Config) -> tuple[VectorEnv, ActorCritic]:
    """The environments of an actor in another process, and its agent, which acts on the CPU."""
    parts = assemble(replace(config, values=config.values | {"device": "cpu"}))
    return parts.env, cast(ActorCritic, parts.agent)
