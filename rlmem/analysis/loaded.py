"""The agent of a run as analyses see it: its parts, its checkpoints, and episodes that it plays greedily."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from torch import Tensor, nn

from rlmem.acting.collector import Collector
from rlmem.acting.workers import closing
from rlmem.config.compose import Config, apply
from rlmem.config.messages import sentence
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.core.types import Batch
from rlmem.record.checkpoint import step_of
from rlmem.run.assemble import Parts, assemble, assemble_trained
from rlmem.run.nodes import make_evaluation_env, require_same_spaces
from rlmem.run.stored import checkpoint_of, checkpoints, load_agent, refuse_others, stored_config

MOST = 1024
"""The greatest number of episodes that an analysis plays."""
M = TypeVar("M", bound=nn.Module)
Measured = TypeVar("Measured")


@dataclass
class Episodes:
    """Whole episodes: rows of slots [N, S] from their starts, of which the first `length` [N] are acted.

    Slots after an episode's final observation belong to another episode.
    """

    batch: Batch
    length: Tensor

    def __iter__(self) -> Iterator[Batch]:
        """Each episode as one row of its acted slots, [1, length]."""
        for i, n in enumerate(self.length.tolist()):
            yield self.batch.map(lambda field, i=i, n=n: field[i : i + 1, :n])  # type: ignore[misc]

    def at_last(self, values: Tensor) -> Tensor:
        """The values [N] of each episode's last acted slot, from values [N, S]."""
        return values[torch.arange(len(self.length)), self.length - 1]


class Keeper(VectorWrapper):
    """Keeps what `look` finds in the innermost environments at every slot in the list `records`.

    env: the environments
    look: called with the innermost environments after every reset and step
    records: what it returned since the last reset, slot by slot
    """

    def __init__(self, env: VectorEnv, look: Callable[[Any], Any], records: list[Any]):
        super().__init__(env)
        self.look, self.records = look, records

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(**options)
        self.records[:] = [self.look(self.env.unwrapped)]
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        self.records.append(self.look(self.env.unwrapped))
        return result


@dataclass
class LoadedRun:
    """A run with the agent of one of its checkpoints, on the CPU.

    seed: root of the streams of the episodes that are played
    best: the step of the best evaluation, once best.pt was loaded; it may have no checkpoint of its own
    trust: whether its configuration is built whoever wrote it
    """

    path: Path
    config: Config
    parts: Parts
    step: int
    seed: int
    best: int | None = None
    trust: bool = False

    @property
    def agent(self) -> Any:
        return self.parts.agent

    def untrained(self) -> Any:
        """The agent before it learnt, as the run's seed and configuration build it: what `init_from` loads is left out.

        It normalises observations as the trained agent does, so that both read the same numbers.
        """
        as_made = assemble(self.config, num_envs=1)
        as_made.env.close()
        for own, trained in zip(as_made.agent.normalisers(), self.agent.normalisers(), strict=True):
            own.load_state_dict(trained.state_dict())
        return as_made.agent

    def with_null(self, measure: Callable[[Any], Measured]) -> dict[str, Measured]:
        """What is measured of the agent ("trained"), and of the same agent before it learnt ("untrained").

        Where the second cannot be measured it is left out, and a line says why.
        """
        measured = {"trained": measure(self.agent)}
        try:
            measured["untrained"] = measure(self.untrained())
        except UserError as error:
            print(f"analyze: the agent before it learnt is left out: {str(error).partition('; ')[0]}")
        return measured

    def twin(self, path: Path | str) -> "LoadedRun":
        """The run `path` that sees everything, of the same kind of checkpoint, on the same random streams.

        Raises UserError if it does not see everything.
        """
        place, step = checkpoint_of(path, None)
        other = load_run(place, step or (None if self.best is None else "best"), self.seed, self.trust)
        if other.config.values["env"].get("observe") != "full":
            lacks = "does not see all of the state; expected a run with env.observe=full"
            raise UserError(f"twin={path} {lacks}; e.g. a run of the same game and memory with it")
        return other

    def load(self, step: int | str | None) -> None:
        """Put the weights of another checkpoint into the agent."""
        best = step == "best" or (step is not None and step == self.best)
        self.step = load_agent(self.agent, self.path, "best" if best else step)["step"]
        if best:
            self.best = self.step

    def steps(self) -> list[int]:
        """The steps of the checkpoints that are kept, ascending; that of the loaded one is among them."""
        return sorted({self.step, *(step_of(path) for path in checkpoints(self.path).paths())})

    def environment(self, num_envs: int, overrides: Sequence[str] = ()) -> VectorEnv:
        """The environment of evaluations, with `env.*` overrides. Raises UserError if the agent cannot play it."""
        where, algo = str(self.path), self.config.choices["algo"]
        if not self.parts.algo.acts:
            raise UserError(sentence(where, f"algo={algo} does not act, and this analysis plays episodes"))
        if not self.agent.reads_slots:
            raise UserError(sentence(where, f"an agent of algo={algo} reads windows, and this analysis whole episodes"))
        refuse_others(overrides, ("env.*",), "cannot be changed for an analysis; accepted", "env.level=medium")
        config = apply(self.config, overrides)
        env = make_evaluation_env(config, num_envs, {line.partition("=")[0].split(".")[1] for line in overrides})
        require_same_spaces(config, self.parts.env, env, " ".join(overrides))
        return env

    def play(
        self, episodes: int, wrap: Callable[[VectorEnv], VectorEnv] = lambda env: env, sampled: bool = False
    ) -> Episodes:
        """Episodes, one in each of `episodes` environments, greedy ones unless the policy is to be `sampled`.

        `wrap` may record something at every slot.
        """
        if episodes > MOST:
            raise UserError(f"{episodes:,} episodes; expected at most {MOST:,}, which are played side by side")
        streams = Streams(self.seed)
        seed, generator = streams.int("evaluation/env"), streams.torch("evaluation/act") if sampled else None
        with closing(wrap(self.environment(episodes))) as env:
            collector = Collector(env, self.agent, seed, generator, self.parts.device)
            most = self.config.settings.evaluation.max_steps
            rollout, _ = collector.collect(slots=1, budget=2**62, complete_episodes=True, most_slots=most)
        if rollout.cut:
            problem = f"episodes did not end within evaluation.max_steps={most}, and an analysis looks at whole ones"
            raise UserError(f"{self.path}: {problem}; e.g. an environment with a time limit")
        batch = rollout.streams
        batch.state0 = None
        return Episodes(batch, batch.mask.sum(1))

    def memories(self, kind: type[M], option: str, agent: Any = None) -> dict[str, M]:
        """The memories of a class in an agent, by name: "memory", or "critic" and "actor", with the place in a stack.

        agent: None: the run's

        Raises UserError, which names the option of conf/memory that has such memories, if there are none.
        """
        trunks = (agent or self.agent).trunks
        named = {"critic": trunks.critic, "actor": trunks.actor} if trunks.separate else {"memory": trunks.critic}
        memories = {
            ".".join([name, *path.split(".")[1:]]) if path else name: module
            for name, trunk in named.items()
            for path, module in trunk.memory.named_modules()
            if isinstance(module, kind)
        }
        if not memories:
            chosen = self.config.choices["memory"]
            raise UserError(f"{self.path} has memory={chosen}; it is for runs with memory={option}")
        return memories


def load_run(run_dir: Path, step: int | str | None = None, seed: int | None = None, trust: bool = False) -> LoadedRun:
    """The agent of a run's checkpoint, as `rlmem eval` takes it, on the CPU.

    run_dir: the run directory
    step: which checkpoint, or "best"; None: the newest intact one
    seed: root of the streams of the episodes that are played; None: that of `rlmem eval`
    trust: build what the configuration names, whoever wrote it (`stored_config`)

    Raises UserError if there is no such checkpoint, or if the configuration is refused.
    """
    config = stored_config(run_dir, ["device=cpu"], trust)
    parts, state = assemble_trained(config, run_dir, step)
    seed = Streams(config.settings.seed).int("rlmem eval") if seed is None else seed
    best = state["step"] if step == "best" else None
    return LoadedRun(run_dir, config, parts, state["step"], seed, best, trust)
