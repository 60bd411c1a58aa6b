"""Agents on Ray: each in a process of its own, on this machine or on a cluster."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from rlmem.acting.cluster import attached, missing
from rlmem.errors import Fault, UserError
from rlmem.population.member import Ask, Member
from rlmem.population.spec import name
from rlmem.system.modules import find_modules_in

SLICE = 10.0
"""Seconds that agents train between checks of their progress and of signals."""

RESTARTS = 3
"""How many times the process of an agent is replaced when it dies."""


class Remote:
    """A member in a process of Ray, which works in the folder `directory` if that exists on its machine.

    It is opened at the first call, also in a process that replaces one that died.
    """

    def __init__(self, folder: Path, number: int, directory: str):
        self.where, self.member = (folder, number), cast(Member | None, None)
        with suppress(OSError):
            os.chdir(directory)
        find_modules_in(directory)

    def ask(self, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self.member = self.member or Member(*self.where)
        return method(self.member, *arguments)

    def close(self) -> None:
        if self.member is not None:
            self.member.close()


@contextmanager
def on_ray(folder: Path, agents: int, gpus: float) -> Iterator[Ask]:
    """Every agent of the population in `folder` on Ray: the cluster of RAY_ADDRESS, or one for this command alone.

    Each takes a core, and reserves `gpus` GPUs. The machines must share the directory. Raises UserError if Ray is
    not installed, or has too few cores or GPUs.
    """
    if problem := missing():
        raise UserError(f"--ray: {problem}")
    with attached(None, agents, key="--agents", needs_gpus=gpus > 0) as ray:
        if gpus * agents > (there := ray.cluster_resources().get("GPU", 0)):
            what = f"{agents} agents need {gpus * agents:g}, and Ray has {there:g}"
            raise UserError(f"--gpus {gpus:g}: {what}; e.g. --gpus {there / agents:g}")
        make = ray.remote(max_restarts=RESTARTS, max_task_retries=RESTARTS, num_cpus=1, num_gpus=gpus)(Remote).remote
        actors = [make(folder.absolute(), agent, os.getcwd()) for agent in range(agents)]

        def ask(method: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
            asked = {agent: actors[agent].ask.remote(method, given) for agent, given in arguments.items()}
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
