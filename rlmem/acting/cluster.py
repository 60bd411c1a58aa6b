"""Ray: attaching to a cluster, or starting one on this machine for one run, and objects in processes of it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from socket import create_connection
from tempfile import TemporaryDirectory
from typing import Any

from rlmem.core.errors import UserError, extra, first_line
from rlmem.core.modules import find_modules_in
from rlmem.core.signals import STOP_SIGNALS

ANSWER_TIMEOUT = 10.0
"""Seconds to wait until a cluster answers."""


def missing() -> str | None:
    """Why Ray cannot be used here; None if it can."""
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
                    what = f"no cluster answers ({first_line(error)}); e.g. {source}=auto after `ray start --head`"
                    raise UserError(f"{source}={address}: {what}") from error
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < actors:
            what = f"each takes a core, and the cluster has {cores}; expected at most as many"
            raise UserError(f"{key}={actors}: {what}; e.g. {key}={max(cores, 1)}")
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
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {getattr(signal, name) for name in STOP_SIGNALS})
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
