"""Agents on Ray: each in a process of its own, on this machine or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlmem.acting.actors.cluster import attached, missing
from rlmem.errors import Fault, UserError
from rlmem.population.member import Member
from rlmem.population.spec import name

SLICE = 10.0
"""Seconds that agents train between looks at how far they are, and at signals."""

RESTARTS = 3
"""How many times an agent is replaced whose process died."""

Ask = Callable[[str, Mapping[int, tuple[Any, ...]]], dict[int, Any]]
"""(a method of Member, arguments by agent) -> results by agent."""


class Remote:
    """A Member that is opened when it is first asked, also by the process that replaces one that died."""

    def __init__(self, folder: Path, number: int, directory: str):
        with suppress(OSError):  # on another machine there need not be one
            os.chdir(directory)
        if directory not in sys.path:
            sys.path.append(directory)  # a `_target_` may name a module of the current folder
        self.where = folder, number
        self.member: Member | None = None

    def ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self.member = self.member or Member(*self.where)
        return getattr(self.member, method)(*arguments)

    def close(self) -> None:
        if self.member is not None:
            self.member.close()


@contextmanager
def on_ray(folder: Path, agents: int, gpus: float) -> Iterator[Ask]:
    """Every agent of the population in `folder` on Ray: the cluster of RAY_ADDRESS, or one for this command alone.

    Each takes a core. The machines must share the directory. Raises UserError if Ray is not there, or is too small.
    """
    if problem := missing():
        raise UserError(f"--ray: {problem}")
    with attached(None, agents, key="--agents", needs_gpus=gpus > 0) as ray:
        if gpus * agents > (there := ray.cluster_resources().get("GPU", 0)):
            what = f"{agents} agents need {gpus * agents:g}, and Ray has {there:g}"
            raise UserError(f"--gpus {gpus:g}: {what}; e.g. --gpus {there / agents:g}")
        make = ray.remote(max_restarts=RESTARTS, max_task_retries=RESTARTS, num_cpus=1, num_gpus=gpus)(Remote).remote
        actors = [make(folder.absolute(), agent, os.getcwd()) for agent in range(agents)]

        def ask(method: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
            asked = {agent: actors[agent].ask.remote(method, arguments) for agent, arguments in calls.items()}
            results = {}
            for agent, answer in asked.items():
                try:
                    results[agent] = ray.get(answer)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayActorError as error:
                    raise Fault(f"{name(agent)}: its process on Ray died {RESTARTS + 1} times") from error
            return results

        try:
            yield ask
        finally:
            with suppress(Exception):
                ray.get([actor.close.remote() for actor in actors], timeout=SLICE)
            for actor in actors:
                ray.kill(actor)
