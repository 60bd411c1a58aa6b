"""`rlmem bench train`: environment steps per second, learning included, beside sb3-contrib's RecurrentPPO."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, cast
from unittest.mock import patch

import torch
from torch.utils.flop_counter import FlopCounterMode

from rlmem.bench.loop import training_loop
from rlmem.bench.skeleton import Bench, Numbers, Table, quotient, verdict
from rlmem.bench.timing import using_threads
from rlmem.errors import UserError, extra
from rlmem.loops.on_policy import OnPolicyLoop
from rlmem.scan import native

ENVS, SLOTS, EPOCHS, MINIBATCHES, WIDTH, HEADS = 16, 128, 4, 4, 256, 64
SETTING = (
    f"popgym RepeatPreviousEasy, {ENVS} environments, rollouts of {SLOTS}, {EPOCHS} epochs of {MINIBATCHES} "
    f"minibatches, memory {WIDTH}, heads {HEADS}-{HEADS}"
)
GOALS = {"rlmem lstm segment": ("sb3 lstm", 3.0), "rlmem ffm tape": ("sb3 shared lstm", 4.0)}
"""Contestant of rlmem -> its peer and the ratio that it must reach. sb3's padded sequences correspond to segments."""
SHARES = ("env", "act", "learn")
MATRIX = 2048  # rows and columns of the matrices whose product measures the machine's rate


@dataclass
class TrainBench(Bench):
    """Whole training runs. rlmem learns with `threads`; sb3-contrib always uses all cores, its default."""

    name = "train"
    refused = frozenset({"budget", "device", "plot_path"})
    budget: float = 1e9

    def __post_init__(self) -> None:
        self.learn_threads, self.threads = self.threads or torch.get_num_threads(), None

    def measure(self, result: Numbers) -> Iterator[None]:
        try:
            import sb3_contrib  # noqa: F401
        except ImportError as error:
            raise UserError(f"bench train: needs sb3-contrib as the peer; e.g. {extra('bench')}") from error
        result["setting"] = SETTING
        result["machine"]["learn_threads"] = self.learn_threads
        with tempfile.TemporaryDirectory() as scratch:
            ours = {
                f"rlmem {memory} {batching}": Ours(memory, batching, scratch, self.learn_threads)
                for memory, batching in product(("lstm", "gru", "ffm"), ("segment", "tape"))
            }
            peers = {"sb3 lstm": StableBaselines(shared=False), "sb3 shared lstm": StableBaselines(shared=True)}
            contestants: dict[str, Ours | StableBaselines] = {**peers, **ours}
            times = self.turns(dict(contestants))
            if failed := [f"{name}: {time.note}" for name, time in times.items() if time.note]:
                raise RuntimeError("; ".join(failed))
            rates = result["steps_per_second"] = {
                name: median(steps / time for steps, time in zip(it.steps[1:], times[name].seconds, strict=True))
                for name, it in contestants.items()
            }
            matmul = self.matmul_rate()
            result["ratios"] = {f"{name} / {peer}": rates[name] / rates[peer] for name, (peer, _) in GOALS.items()}
            result["time_shares"] = {name: it.loop.shares() for name, it in ours.items()}
            shares = {name: it.flops * self.rounds / it.loop.learn_time / matmul for name, it in ours.items()}
            result |= {"matmul_share_while_learning": shares, "matmul_gflops": matmul / 1e9}
            yield

    def matmul_rate(self) -> float:
        """Floating-point operations per second of a large float32 matrix product on all cores, the best of a second."""
        a, b = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
        multiply = lambda: torch.mm(a, b)  # noqa: E731
        times = [self.seconds(multiply) for _ in range(ceil(1 / self.seconds(multiply)))]
        return 2 * MATRIX**3 / min(times)

    def tables(self, result: Numbers) -> list[Table]:
        rows = []
        for name, steps in result["steps_per_second"].items():
            shares = [quotient(result["time_shares"].get(name, {}).get(part), 0.01) for part in SHARES]
            rows.append((name, steps, *shares, quotient(result["matmul_share_while_learning"].get(name), 0.01)))
        heads = ("steps/s", *(f"{head}, %" for head in (*SHARES, "matmul rate reached")))
        return [Table(result["setting"], [""], dict.fromkeys(heads, ""), rows)]

    def verdicts(self, result: Numbers) -> Iterator[str]:
        for name, (other, goal) in GOALS.items():
            yield verdict(f"{name} / {other}:", result["ratios"][f"{name} / {other}"], goal)


class Ours:
    """A training run of rlmem; a call is one iteration of its loop, recording included."""

    def __init__(self, memory: str, batching: str, scratch: str, threads: int):
        self.threads, self.steps = threads, list[int]()
        sizes = f"env.num_envs={ENVS} memory.hidden_size={WIDTH} algo.head_sizes=[{HEADS},{HEADS}] device=cpu"
        updates = f"algo.rollout_slots={SLOTS} algo.epochs={EPOCHS} algo.num_minibatches={MINIBATCHES}"
        choices = [f"memory={memory}", f"batching={batching}", "total_steps=100000000"]
        loop = training_loop([*choices, *sizes.split(), *updates.split()], Path(tempfile.mkdtemp(dir=scratch)))
        self.loop = cast(OnPolicyLoop, loop)
        with using_threads(1):
            rollout, _ = self.loop.collector.collect(SLOTS, 2**62)
        # The counter sees torch's operators only, and none of what kernels do.
        with patch.object(native, "takes", lambda *tensors: False), FlopCounterMode(display=False) as counter:
            self.loop.algo.update(rollout, self.loop.batching, 0.0)
        self.flops = counter.get_total_flops()  # the matrix products of one update

    def __call__(self) -> None:
        before = self.loop.collector.steps
        with using_threads(self.threads):
            self.loop.iterate()
        self.steps.append(self.loop.collector.steps - before)
        if len(self.steps) == 1:  # the warm-up
            self.loop.learn_time = self.loop.elapsed = 0.0
            self.loop.collector.seconds.update(env=0.0, act=0.0)


class StableBaselines:
    """sb3-contrib's RecurrentPPO on the same game with its own defaults; a call is one iteration."""

    def __init__(self, shared: bool):
        from popgym.envs import RepeatPreviousEasy
        from sb3_contrib import RecurrentPPO
        from stable_baselines3.common.vec_env import DummyVecEnv

        self.steps: list[int] = []
        lstm = {"shared_lstm": True, "enable_critic_lstm": False} if shared else {}
        policy = {"lstm_hidden_size": WIDTH, "net_arch": [HEADS, HEADS], **lstm}
        sizes: dict[str, Any] = {"n_steps": SLOTS, "batch_size": ENVS * SLOTS // MINIBATCHES, "n_epochs": EPOCHS}
        envs = DummyVecEnv([RepeatPreviousEasy] * ENVS)
        self.model = RecurrentPPO("MlpLstmPolicy", envs, policy_kwargs=policy, device="cpu", **sizes)

    def __call__(self) -> None:
        self.model.learn(ENVS * SLOTS, reset_num_timesteps=False)
        self.steps.append(ENVS * SLOTS)
