"""From the parts of a run to its loop: what collects, learns, evaluates and saves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from gymnasium.vector import VectorEnv

from rlmem.acting.actors import Pool
from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.off_policy import OffPolicyAgent
from rlmem.algos.impala import Impala
from rlmem.algos.off_policy import OffPolicy
from rlmem.config.compose import Config
from rlmem.errors import UserError
from rlmem.loops.actors import ActorLoop
from rlmem.loops.base import Loop, Schedule
from rlmem.loops.off_policy import OffPolicyLoop
from rlmem.loops.on_policy import OnPolicyLoop
from rlmem.parallel import place
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.replay import Replay
from rlmem.run.assemble import Parts, assemble
from rlmem.run.environments import EVAL_ENVS, make_evaluation_env
from rlmem.run.experiment import experiment_of
from rlmem.supervised.base import Supervised
from rlmem.supervised.loop import SupervisedLoop


class Silent:
    """What a process that writes nothing has in the place of recorder, checkpoints and progress."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def make_loop(config: Config, parts: Parts, run_dir: Path | None, recorder: Recorder, progress: Progress) -> Loop:
    """The loop of this process; run_dir: None for one that writes nothing."""
    values, streams, rank = config.values, parts.streams, place().rank
    if (devices := values["trainer"]["devices"]) != place().size:
        what = "only `rlmem train` and `rlmem resume` train one run in several processes"
        raise UserError(f"trainer.devices={devices}: {what}; e.g. trainer.devices=1")
    own = lambda name: f"{name}/{rank}" if rank else name  # noqa: E731
    algo: Any = parts.algo
    collector: Any
    if isinstance(algo, Supervised):
        collector = algo.feed(parts.env, streams, parts.device)
    else:
        acting = streams.torch(own("act"), parts.device)
        collector = Collector(parts.env, parts.agent, streams.int(own("env")), acting, parts.device)
        collector.say = progress.say
    keep = values["checkpoint"]["keep"]
    shared: dict[str, Any] = {
        "total_steps": values["total_steps"],
        "agent": parts.agent,
        "batching": parts.batching,
        "collector": collector,
        "make_eval_env": lambda: make_evaluation_env(config, min(values["evaluation"]["episodes"], EVAL_ENVS)),
        "evaluation": Schedule(values["evaluation"]["every"]),
        "evaluation_episodes": values["evaluation"]["episodes"],
        "evaluation_steps": config.settings.evaluation.max_steps,
        "streams": streams,
        "recorder": recorder,
        "checkpoints": Silent() if run_dir is None else Checkpoints(run_dir / "checkpoints", keep),
        "checkpoint": Schedule(values["checkpoint"]["every"]),
        "progress": progress,
        "experiment": experiment_of(values),
    }
    if isinstance(algo, Supervised):
        algo.setup(parts.agent, values["on_nan"])
        return SupervisedLoop(algo=algo, **shared)
    if isinstance(algo, OffPolicy):
        algo.setup(cast(OffPolicyAgent, parts.agent), streams.torch("losses", parts.device), values["on_nan"])
        return OffPolicyLoop(algo=algo, replay=make_replay(parts), generator=streams.torch("replay"), **shared)
    algo.setup(parts.agent, streams.torch(own("rows")), values["on_nan"])
    if not (isinstance(algo, Impala) and algo.actors):
        return OnPolicyLoop(algo=algo, **shared)
    make, num_envs = partial(_acting, config), parts.num_envs
    pool = Pool(make, algo.actors, num_envs, parts.agent, streams, parts.device, progress.say, algo.ray_address)
    return ActorLoop(algo=algo, **shared | {"collector": pool})


def _acting(config: Config) -> tuple[VectorEnv, ActorCritic]:
    """The environments of an actor in another process, and its agent, which acts on the CPU."""
    parts = assemble(replace(config, values=config.values | {"device": "cpu"}))
    return parts.env, cast(ActorCritic, parts.agent)


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
