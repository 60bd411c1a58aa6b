"""Processes on Ray: a cluster or one for this run, objects in it, actors that collect rollouts, and a pool of these."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from socket import create_connection
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rlmem.acting.collector import Collector, Episode
from rlmem.agents.actor_critic import Agent
from rlmem.batching import Rollout
from rlmem.core.command import STOP_SIGNALS
from rlmem.core.errors import Fault, UserError, extra, first_line
from rlmem.core.hardware import find_modules_in
from rlmem.core.seeding import Streams

ANSWER_TIMEOUT = 10.0
"""Seconds to wait until a cluster answers."""


def missing() -> str | None:
    """The reason why Ray cannot be used here; None if it can."""
    return None if find_spec("ray") else f"needs Ray, which is not installed; e.g. {extra('ray')}"


@contextmanager
def attached(address: str | None, actors: int, key: str = "algo.actors", needs_gpus: bool = False) -> Iterator[Any]:
    """The module `ray`, attached to a cluster with a core for each actor. Raises UserError if none answers, or if it is
    too small.

    address: address of a cluster, or `auto`; None: the cluster that RAY_ADDRESS names or that this process is part
        of, or else one on this machine, of which nothing remains afterwards
    actors: how many actors there will be
    key: the configuration's key for the number of actors, for messages
    needs_gpus: whether a Ray that is started on this machine may use its GPUs
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
    import ray

    source = "algo.ray_address" if address else "RAY_ADDRESS"
    address = address or os.environ.get("RAY_ADDRESS")
    with ExitStack() as stack:
        if not ray.is_initialized():
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
            if address is None:
                short = os.environ.get("RAY_TMPDIR", "/tmp")  # not $TMPDIR: the paths of sockets must be short
                folder = TemporaryDirectory(prefix="ray-", dir=short, ignore_cleanup_errors=True)
                own = {"num_cpus": actors, "num_gpus": None if needs_gpus else 0, "include_dashboard": False}
                quiet |= own | {"_temp_dir": stack.enter_context(folder)}
            stack.callback(ray.shutdown)
            with _without_signals():
                try:
                    host, _, port = (address or "").rpartition("/")[2].rpartition(":")
                    if host and port.isdigit():  # fail at once if nothing listens: Ray itself would try for minutes
                        create_connection((host.strip("[]"), int(port)), ANSWER_TIMEOUT).close()
                    ray.init(address, **quiet)
                except (OSError, ValueError) as error:
                    if address is None:
                        raise
                    problem = f"no cluster answers ({first_line(error)}); e.g. {source}=auto after `ray start --head`"
                    raise UserError(f"{source}={address}: {problem}") from error
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < actors:
            problem = f"each takes a core, and the cluster has {cores}; expected at most as many"
            raise UserError(f"{key}={actors}: {problem}; e.g. {key}={max(cores, 1)}")
        yield ray


@contextmanager
def _without_signals() -> Iterator[None]:
    """Start Ray inside: its processes then ignore the signals that ask a whole job to stop, since the learner
    needs them until it has saved. Ray's own handler of SIGTERM is removed again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Worker:
    """An object in a process of Ray, made by the first call, also in a process that replaces one that died.

    The process works in `folder` if that exists on its machine, and finds modules in it and in the caller's `path`.
    """

    def __init__(self, make: Callable[[], Any], path: Sequence[str], folder: str):
        sys.path.extend(entry for entry in path if entry not in sys.path)
        with suppress(OSError):
            os.chdir(folder)
        find_modules_in(folder)
        self.make, self.made = make, None

    def call(self, method: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
        """The result of a method of the object's class; the caller receives what making the object raises."""
        self.made = self.made or self.make()
        return method(self.made, *arguments, **how)

    def close(self) -> None:
        """Close the object, if it was made."""
        if self.made is not None:
            self.made.close()


def worker(ray: Any, make: Callable[[], Any], **resources: Any) -> Any:
    """A new process on Ray for the object that `make` makes, which must be picklable."""
    return ray.remote(num_cpus=1, **resources)(Worker).remote(make, sys.path, os.getcwd())


def answer(ray: Any, reference: Any) -> Any:
    """The result of a call. Raises what the call raised, and RayError if its process died."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


DEATHS = 3
"""Deaths per actor, on average, after which a run ends if no rollout came in between."""
COUNTERS = ("steps", "delivered", "restarts", "births")
"""The counters of a pool that a checkpoint holds."""

Maker = Callable[[], tuple[VectorEnv, Agent]]
"""Makes an actor's environments and its agent, on the CPU."""


class Actor:
    """Environments, a copy of the agent, and the random streams of `seed` whose names begin with `name`."""

    def __init__(self, make: Maker, seed: int, name: str):
        torch.set_num_threads(1)
        (env, agent), streams = make(), Streams(seed)
        env_seed, acting = streams.int(f"{name}/env"), streams.torch(f"{name}/act")
        self.collector = Collector(env, agent, env_seed, acting, torch.device("cpu"))

    def collect(self, weights: dict[str, Tensor], slots: int, budget: int, **how: Any) -> tuple[Rollout, list[Episode]]:
        """Act with these weights; see `Collector.collect`. `Episode.step` counts from the rollout's beginning."""
        self.collector.agent.load_state_dict(weights)
        self.collector.steps = 0
        return self.collector.collect(slots, budget, **how)


class Task(NamedTuple):
    """A rollout that is being collected."""

    actor: int
    """The index of the actor that collects it."""
    version: int
    """Rollouts that had been delivered when its weights were sent."""
    grant: int
    """Environment steps that the actor may take."""


@dataclass
class ActorPool:
    """Collects as a `Collector` does, but in other processes: each call gives the next rollout of any of the actors.

    Actors collect without waiting for one another or for the learner. One that has delivered gets the agent's present
    weights at the next call. Steps are counted as rollouts come, so exactly the budget is taken. A process that dies is
    replaced; what it was collecting is lost, and not counted. Everything starts with the first call.

    make: must be picklable
    actors: how many processes
    num_envs: environments of each actor
    agent: the learner's agent
    streams: the random streams of the run; those of every process are named after it
    device: where rollouts go
    say: tells the user that an actor has died
    address: address of a Ray cluster; see `rlmem.acting.actors.attached`
    """

    make: Maker
    actors: int
    num_envs: int
    agent: nn.Module
    streams: Streams
    device: torch.device
    say: Callable[[str], None]
    address: str | None = None

    def __post_init__(self) -> None:
        self.seconds = {"wait": 0.0}
        self.steps = self.delivered = self.restarts = self.births = 0
        self._deaths = 0  # since the last rollout
        self._ray: Any = None
        self._exit = ExitStack()
        self._workers: list[Any] = []
        self._idle: list[int] = []
        self._running: dict[Any, Task] = {}

    def collect(self, slots: int, budget: int, **how: Any) -> tuple[Rollout, list[Episode]]:
        """The next rollout; see `Collector.collect`. Raises Fault if the actors keep dying."""
        began = perf_counter()
        if self._ray is None:
            self._ray = self._exit.enter_context(attached(self.address, self.actors))
            self._workers = [self._worker() for _ in range(self.actors)]
            self._idle = list(range(self.actors))
        while True:
            self._ask(slots, budget, how)
            (ref,), _ = self._ray.wait(list(self._running), num_returns=1)
            task = self._running.pop(ref)
            try:
                rollout, episodes = answer(self._ray, ref)
                break
            except Fault as fault:  # of the environment or of the agent
                raise Fault(f"step {self.steps}: actor {task.actor}: {fault}", fault.traceback) from fault
            except self._ray.exceptions.RayError as error:
                # Ray's own sentence, or the exception that was raised when the process started.
                lines = [line for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
                self._replace(task.actor, lines[-1 if "creation task" in lines[0] else 0].strip())
        self.seconds["wait"] += perf_counter() - began
        taken = int(rollout.streams.mask.sum())
        # An actor that was cut short within a step of its vector has transitions that were not counted: its episodes
        # cannot go on. Another actor takes what is left, since only what others did not use can be left.
        if task.grant == self.num_envs * slots or taken < task.grant:
            self._idle.append(task.actor)
        for episode in episodes:
            episode.step += self.steps
            episode.env += task.actor * self.num_envs
        rollout.lag = self.delivered - task.version
        self.steps += taken
        self.delivered += 1
        self._deaths = 0
        to = lambda tensor: tensor.to(self.device)  # noqa: E731
        rollout.streams = rollout.streams.map(to)
        rollout.states, rollout.state_index = tree_map_only(Tensor, to, (rollout.states, rollout.state_index))
        return rollout, episodes

    def _worker(self) -> Any:
        """A new process, whose random streams no process before it has used."""
        self.births += 1
        return worker(self._ray, partial(Actor, self.make, self.streams.seed, f"actor {self.births}"))

    def _ask(self, slots: int, budget: int, how: dict[str, Any]) -> None:
        """Give the idle actors the present weights and what is left of the budget."""
        free = budget - sum(task.grant for task in self._running.values())
        weights = None
        while self._idle and free > 0:
            actor, grant = self._idle.pop(0), min(free, self.num_envs * slots)
            free -= grant
            if weights is None:
                weights = self._ray.put({name: value.cpu() for name, value in self.agent.state_dict().items()})
            ref = self._workers[actor].call.remote(Actor.collect, weights, slots, grant, **how)
            self._running[ref] = Task(actor, self.delivered, grant)

    def _replace(self, actor: int, reason: str) -> None:
        self.restarts += 1
        self._deaths += 1
        if self._deaths > DEATHS * self.actors:
            problem = f"actors died {self._deaths} times, and no rollout came in between ({reason})"
            raise Fault(f"step {self.steps}: {problem}; e.g. out of memory: a smaller env.num_envs or algo.actors")
        problem = f"actor {actor} died ({reason}); its running episodes are dropped, and a new one begins"
        self.say(f"step {self.steps}: {problem}")
        self._ray.kill(self._workers[actor])  # it may be alive if only its answer was lost
        self._workers[actor] = self._worker()
        self._idle.append(actor)

    def close(self) -> None:
        """End the actors, and Ray if it runs for them alone."""
        for actor in self._workers:
            self._ray.kill(actor)
        self._workers, self._idle, self._running = [], [], {}
        self._exit.close()
        self._ray = None

    def state_dict(self) -> dict[str, Any]:
        """Counters only; rollouts that are being collected are dropped."""
        return {name: getattr(self, name) for name in COUNTERS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in COUNTERS:
            setattr(self, name, state[name])
