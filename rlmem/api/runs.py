"""Runs: training them, and what their directories hold."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from gymnasium.vector import VectorEnv
from rich.console import Console

from rlmem.api.make import absolute, as_typed, tabular
from rlmem.config import compose
from rlmem.core.errors import UserError
from rlmem.core.parallel import launched
from rlmem.loops.parts import Callback
from rlmem.record import rundir
from rlmem.record.recorder import read_jsonl
from rlmem.run import stored
from rlmem.run import train as course
from rlmem.run.evaluate import evaluate_run
from rlmem.run.nodes import make_evaluation_env
from rlmem.run.trained import TrainedAgent, open_agent


class Run:
    """A run directory.

    path: the directory, with `@best` or `@STEP` for another checkpoint than the newest; from here on the absolute path
        of the directory, and `which` the checkpoint
    trust: accept a configuration that another user wrote or edited, which may call any code

    Raises UserError if the directory holds no run.
    """

    def __init__(self, path: str | Path, trust: bool = False):
        (self.path, self.which), self.trust = stored.parse_source(str(absolute(path))), trust
        rundir.read(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, nested: what config.yaml holds."""
        return rundir.read(self.path)[0]

    def checkpoints(self) -> list[int | str]:
        """What `agent` and `evaluate` accept as `which`: "best" if there is one, and steps in rising order."""
        return list(stored.available(self.path))

    def agent(self, which: int | str | None = None, device: str = "cpu", seed: int = 0) -> TrainedAgent:
        """The agent of a checkpoint.

        which: environment steps of the checkpoint, or "best" for that of the best evaluation; None: that of `path`
        device: cpu, cuda or auto
        seed: of the draws where it samples its actions
        """
        return open_agent(self.path, self._checkpoint(which), device, seed, self.trust)

    def metrics(self) -> Any:
        """A row for every iteration of training: a pandas.DataFrame if pandas is installed, else a list of dicts."""
        return tabular(row for row in self._rows("metrics") if not _is_evaluation(row))

    def evaluations(self) -> Any:
        """A row for every evaluation during training, as for `metrics`."""
        return tabular(row for row in self._rows("metrics") if _is_evaluation(row))

    def episodes(self) -> Any:
        """A row for every episode of training, as for `metrics`."""
        return tabular(self._rows("episodes"))

    def make_env(self, num_envs: int = 1, **env: Any) -> VectorEnv:
        """The environments in which the run is evaluated, as `rlmem.make_env` makes them.

        num_envs: how many
        env: keys of `env` to change, such as level="hard"
        """
        changes = as_typed({f"env.{key}": value for key, value in env.items()})
        return make_evaluation_env(stored.stored_config(self.path, changes, self.trust), num_envs, env)

    def evaluate(
        self,
        episodes: int = 100,
        seed: int | None = None,
        which: int | str | None = None,
        device: str | None = None,
        max_steps: int | None = None,
        video: bool = False,
        **env: Any,
    ) -> dict[str, Any]:
        """Play episodes with the agent, greedy and sampled, as `rlmem eval` does; returns its row of eval.jsonl.

        episodes: how many of each kind
        seed: root of the random streams; None: derived from the run's
        which: as for `agent`
        device: cpu, cuda or auto; None: the run's
        max_steps: steps after which an episode is cut; None: the run's `evaluation.max_steps`
        video: also draw one greedy episode; the row's `video` is the path of the animation
        env: keys of `env` to change, such as level="hard"
        """
        asked = {"device": device, "evaluation.max_steps": max_steps}
        changes = {key: value for key, value in asked.items() if value is not None}
        changes |= {f"env.{key}": value for key, value in env.items()}
        which, silent = self._checkpoint(which), lambda line: None
        return evaluate_run(self.path, episodes, seed, as_typed(changes), which, video, self.trust, silent)

    def export(
        self,
        format: Literal["onnx", "torch"] = "onnx",
        which: int | str | None = None,
        out: str | Path | None = None,
        episodes: int = 100,
        license: str | None = None,
    ) -> Path:
        """Write the agent's acting step to one file that needs no rlmem, and a card beside it; returns the file.

        format: onnx, or torch for what `torch.export.load` reads
        which: as for `agent`
        out: the file; None: export/agent.onnx or agent.pt2 in the run directory
        episodes: those that the card's returns are over
        license: what the card says of the licence of the weights

        Raises UserError, which names the operator, for an agent that the format cannot hold, and Fault for a file that
        departs from the agent.
        """
        from rlmem.share.write import export

        out, which = None if out is None else absolute(out), self._checkpoint(which)
        return export(self.path, self.trust, format, which, out, episodes, license)[0]

    def push(
        self,
        repo: str | None = None,
        which: int | str | None = None,
        private: bool = False,
        update: bool = False,
        episodes: int = 100,
        license: str | None = None,
    ) -> str:
        """Evaluate the agent and write it to a repository of the Hugging Face Hub; returns the address of its page.

        repo: OWNER/NAME; without OWNER, of who is logged in; None: the name of the run directory
        which: as for `agent`
        private: make the repository private, if it is made
        update: write to a repository that holds files already, as a new commit
        episodes: those that the card's returns are over
        license: of the weights, as the Hub calls it, such as "mit"; None: not stated

        Raises UserError if the Hub refuses or cannot be reached. It then has no part of the agent.
        """
        from rlmem.share.hub import push

        which = self._checkpoint(which)
        return push(self.path, self.trust, repo, which, private, update, episodes, license).url

    def resume(
        self, *overrides: str, verbose: bool = False, callbacks: Sequence[Callback] = (), **values: Any
    ) -> "Run":
        """Continue the run from its newest intact checkpoint, exactly where it was; returns it.

        overrides: `key=value` as on the command line
        verbose: show progress
        callbacks: as for `rlmem.train`
        values: keys that a resumed run may change, such as total_steps=2_000_000
        """
        lines = [*overrides, *as_typed(values)]
        run = self.path if self.which is None else f"{self.path}@{self.which}"
        _train(lambda console: course.resume(run, lines, self.trust, console, callbacks), verbose)
        return self

    def _checkpoint(self, which: int | str | None) -> int | str | None:
        return self.which if which is None else which

    def _rows(self, name: str) -> list[dict[str, Any]]:
        path = self.path / f"{name}.jsonl"
        if not path.exists():
            raise UserError(f"{path}: is missing; expected what `rlmem train` wrote; restore it")
        return read_jsonl(path)


def load(source: str | Path, device: str = "cpu", seed: int = 0, trust: bool = False) -> TrainedAgent:
    """The agent of a run.

        agent = rlmem.load("runs/gru@best")

    source: a run directory, with `@best` for the agent of the best evaluation or `@STEP` for that of a checkpoint;
        else of the newest checkpoint
    device, seed: as for `Run.agent`
    trust: as for `Run`

    Raises UserError if there is no such run or checkpoint.
    """
    return Run(source, trust).agent(None, device, seed)


def train(*overrides: str, verbose: bool = False, callbacks: Sequence[Callback] = (), **values: Any) -> Run:
    """Train an agent: the same run, in the same directory and with the same numbers, as `rlmem train` on the command
    line.

        run = rlmem.train("memory=gru", "env=repeat_previous", total_steps=200_000)

    overrides: `group=option` and `key=value`, as on the command line
    verbose: show progress
    callbacks: objects of `rlmem.Callback`, which watch the run
    values: keys with values of Python; those of groups are overrides, such as "algo.lr=0.001"

    Raises UserError for mistakes, KeyboardInterrupt after Ctrl-C, which saves the run first.
    """
    config = compose.load([*overrides, *as_typed(values)])
    return Run(_train(lambda console: course.train(config, None, console, callbacks), verbose))


def pull(repo: str, path: str | Path | None = None, revision: str | None = None, trust: bool = False) -> Run:
    """Download an agent that `Run.push` wrote to the Hugging Face Hub, as a run directory that somebody else made.

        agent = rlmem.pull("me/gru").agent()

    repo: OWNER/NAME
    path: the new run directory; None: runs/NAME
    revision: branch, tag or commit of the repository; None: main
    trust: as for `Run`

    Raises UserError if the directory exists, or if there is no such agent. Nothing is written then.
    """
    from rlmem.share.hub import pull as download

    return Run(download(repo, None if path is None else absolute(path), revision)[0], trust)


def _train(begin: Callable[[Console | None], course.Finished], verbose: bool) -> Path:
    """Train, leaving torch's number of threads as it was; returns the run directory."""
    if (there := launched()) and there.size > 1:
        problem = f"this is one of {there.size} processes (WORLD_SIZE={there.size})"
        raise UserError(f"rlmem.train: {problem}; expected one; e.g. torchrun -m rlmem train, or trainer.devices=2")
    threads = torch.get_num_threads()
    try:
        run_dir = begin(None if verbose else Console(quiet=True)).run_dir
    finally:
        torch.set_num_threads(threads)
    assert run_dir is not None  # this process is the first
    return run_dir


def _is_evaluation(row: dict[str, Any]) -> bool:
    return any(name.startswith("eval/") for name in row)
