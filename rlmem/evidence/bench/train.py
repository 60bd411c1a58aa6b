"""`rlmem bench train`: environment steps per second, learning included, beside sb3-contrib's RecurrentPPO."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rlmem.config.compose import load
from rlmem.core.errors import UserError, extra
from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, quotient, verdict
from rlmem.loops.base import Loop
from rlmem.record.recorder import Progress, Recorder
from rlmem.run.assemble import assemble
from rlmem.run.train import make_loop

ENVS, SLOTS, EPOCHS, MINIBATCHES, WIDTH, HEADS = 16, 128, 4, 4, 256, 64
SETTING = (
    f"popgym RepeatPreviousEasy, {ENVS} environments, rollouts of {SLOTS}, {EPOCHS} epochs of {MINIBATCHES} "
    f"minibatches, memory {WIDTH}, heads {HEADS}-{HEADS}"
)
GOALS = {"rlmem lstm segment": ("sb3 lstm", 3.0), "rlmem ffm tape": ("sb3 shared lstm", 4.0)}
"""Contestant of rlmem -> its peer and the ratio that it must reach. sb3's padded sequences correspond to segments."""
SHARES = ("env", "act", "learn")


@dataclass
class TrainBench(Bench):
    """Whole training runs; both sides learn with `threads`, and rlmem acts with one."""

    name = "train"
    refused = frozenset({"budget", "device"})
    budget: float = 1e9

    def measure(self, result: Numbers) -> Iterator[None]:
        result["setting"] = SETTING
        with tempfile.TemporaryDirectory() as scratch:
            peers = {"sb3 lstm": StableBaselines(shared=False), "sb3 shared lstm": StableBaselines(shared=True)}
            ours = {
                f"rlmem {memory} {batching}": Ours(memory, batching, scratch)
                for memory, batching in product(("lstm", "gru", "ffm"), ("segment", "tape"))
            }
            contestants: dict[str, Ours | StableBaselines] = {**peers, **ours}
            times = self.turns(dict(contestants))
            if failed := [f"{name}: {time.note}" for name, time in times.items() if time.note]:
                raise RuntimeError("; ".join(failed))
            rates = result["steps_per_second"] = {
                name: median(steps / time for steps, time in zip(it.steps[1:], times[name].seconds, strict=True))
                for name, it in contestants.items()
            }
            result["ratios"] = {f"{name} / {peer}": rates[name] / rates[peer] for name, (peer, _) in GOALS.items()}
            result["time_shares"] = {name: it.loop.shares() for name, it in ours.items()}
            yield

    def tables(self, result: Numbers) -> list[PlottedTable]:
        rows = []
        for name, steps in result["steps_per_second"].items():
            rows.append((name, steps, *(quotient(result["time_shares"].get(name, {}).get(p), 0.01) for p in SHARES)))
        columns = {"steps/s": "steps per second", **dict.fromkeys((f"{part}, %" for part in SHARES), "% of the time")}
        return [PlottedTable(result["setting"], [""], columns, rows)]

    def verdicts(self, result: Numbers) -> Iterator[str]:
        for name, (other, goal) in GOALS.items():
            yield verdict(f"{name} / {other}:", result["ratios"][f"{name} / {other}"], goal)


class Ours:
    """A training run of rlmem; a call is one iteration of its loop, recording included."""

    def __init__(self, memory: str, batching: str, scratch: str):
        self.steps: list[int] = []
        sizes = f"env.num_envs={ENVS} memory.hidden_size={WIDTH} algo.head_sizes=[{HEADS},{HEADS}] device=cpu"
        updates = f"algo.rollout_slots={SLOTS} algo.epochs={EPOCHS} algo.num_minibatches={MINIBATCHES}"
        choices = [f"memory={memory}", f"batching={batching}", "total_steps=100000000"]
        self.loop = training_loop([*choices, *sizes.split(), *updates.split()], Path(tempfile.mkdtemp(dir=scratch)))

    def __call__(self) -> None:
        before = self.loop.collector.steps
        self.loop.iterate()
        self.steps.append(self.loop.collector.steps - before)
        if len(self.steps) == 1:  # the warm-up
            self.loop.learn_time = self.loop.elapsed = 0.0
            self.loop.collector.seconds.update(env=0.0, act=0.0)


class StableBaselines:
    """sb3-contrib's RecurrentPPO on the same game with its own defaults; a call is one iteration."""

    def __init__(self, shared: bool):
        self.steps: list[int] = []
        self.model = recurrent_ppo(ENVS, SLOTS, EPOCHS, MINIBATCHES, [HEADS, HEADS], shared, device="cpu")

    def __call__(self) -> None:
        self.model.learn(ENVS * SLOTS, reset_num_timesteps=False)
        self.steps.append(ENVS * SLOTS)


def training_loop(overrides: Sequence[str], run_dir: Path) -> Loop:
    """The loop of a run with these overrides. It records as any run does, and prints nothing.

    run_dir: an existing folder
    """
    config = load(overrides)
    quiet = Progress(config.settings.total_steps, run_dir / "log.txt", console=Console(quiet=True))
    parts = assemble(config)
    return make_loop(parts, run_dir, Recorder(run_dir, quiet.say), quiet)


def recurrent_ppo(
    envs: int, slots: int, epochs: int, minibatches: int, heads: list[int], shared: bool, **run: Any
) -> Any:
    """sb3-contrib's RecurrentPPO on popgym's RepeatPreviousEasy, with a shared LSTM or one each for actor and critic.

    run: more arguments of RecurrentPPO

    Raises UserError if sb3-contrib or popgym is not installed.
    """
    try:
        from popgym.envs import RepeatPreviousEasy
        from sb3_contrib import RecurrentPPO
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError as error:
        raise UserError(f"bench: needs sb3-contrib as the peer; e.g. {extra('bench')}") from error
    lstm = {"shared_lstm": True, "enable_critic_lstm": False} if shared else {}
    policy = {"lstm_hidden_size": WIDTH, "net_arch": heads, **lstm}
    sizes: dict[str, Any] = {"n_steps": slots, "batch_size": envs * slots // minibatches, "n_epochs": epochs}
    games = DummyVecEnv([RepeatPreviousEasy] * envs)
    return RecurrentPPO("MlpLstmPolicy", games, policy_kwargs=policy, **sizes, **run)
