"""What matters off-policy: TD3 on Pendulum with one thing changed at a time, for the table of docs/algorithms.md.

    OMP_NUM_THREADS=1 python benchmarks/peers/controls.py [--seeds 3] [--out benchmarks/peers/controls.jsonl]

The base is TD3 of the paper (`action_l2=0`) on single transitions, with `encoder=mlp`, the memoryless memory and heads
as they are by default (six hidden layers), and a learning rate of 1e-3. Runs that the file holds already are not made
again; the table is printed at the end.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import gymnasium
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from rlmem.algos.actor_critic import frozen
from rlmem.algos.off_policy import Metrics
from rlmem.algos.slots import Slots
from rlmem.algos.td3 import TD3
from rlmem.config.compose import load
from rlmem.nets import encoder, heads
from rlmem.run.train import train
from rlmem.types import Batch

STEPS = 8000
BASE = (
    "memory=mlp encoder=mlp env=gym env.id=Pendulum-v1 env.num_envs=1 batching=transitions algo=td3 algo.action_l2=0 "
    "algo.lr=0.001 algo.batch_size=256 algo.update_ratio=1 algo.random_steps=1000 algo.learning_starts=1000 "
    f"algo.reward_scale=1 total_steps={STEPS} evaluation.every=2000 evaluation.episodes=20 checkpoint.every=null "
    "logger=[local] device=cpu"
)
PLAIN = "encoder=plain memory.layers=0 algo.head_sizes=[256,256]"

INIT, FORWARD = heads.TwinQ.__init__, heads.TwinQ.forward
UPDATE = TD3.update


@contextmanager
def equal_weights() -> Iterator[None]:
    """The action's first weights as large as those of any one feature."""

    def init(self: heads.TwinQ, features: int, actions: int, layers: Any) -> None:
        INIT(self, features, actions, layers)
        with torch.no_grad():
            for head in self.heads:
                next(head.parameters())[:, features:] /= (features / actions) ** 0.5

    with patch.object(heads.TwinQ, "__init__", init):
        yield


def torchs_weights() -> AbstractContextManager[Any]:
    """Torch's initial weights in the encoder in place of orthogonal ones."""
    return patch.object(encoder, "orthogonal", lambda layer: layer)


def without_norm() -> AbstractContextManager[Any]:
    """The encoder without its layer norm."""
    return patch.object(encoder, "F", SimpleNamespace(layer_norm=lambda x, shape: x, leaky_relu=leaky_relu))


def actions_of_the_game() -> AbstractContextManager[Any]:
    """The critic reads actions in [-2, 2], as the game takes them."""

    def forward(self: heads.TwinQ, features: Tensor, action: Tensor) -> Tensor:
        return FORWARD(self, features, 2 * action)

    return patch.object(heads.TwinQ, "forward", forward)


def critic_first() -> AbstractContextManager[Any]:
    """A step of the critic, and then one of the actor up the new critic, as in the published code."""

    def update(self: TD3, batch: Batch) -> tuple[Metrics, Tensor | None]:
        never = 10**9
        with patch.multiple(self, policy_delay=never, target_every=never):
            found = UPDATE(self, batch)
        if self.updates % self.policy_delay == 0:
            slots = Slots(batch)
            seen = self.seen(*self.agent.trunks.features(batch), slots)
            with frozen(self.q_parameters):
                q = self.agent.q(seen.judge, self.agent.policy(seen.policy))[0]
            self.optim.zero_grad()
            (-slots.mean(q)).backward()
            self.optim.step()
            self.follow()
        return found

    return patch.object(TD3, "update", update)


class TerminalLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An end at the time limit that says it is terminal."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, False, info


CONTROLS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "base": ("", nullcontext),
    "equal first weights": ("", equal_weights),
    "equal first weights, plain network": (PLAIN, equal_weights),
    "plain network": (PLAIN, nullcontext),
    "tape of 256": ("batching=tape", nullcontext),
    "tape of 256, plain network": (f"batching=tape {PLAIN}", nullcontext),
    "8 rows of 32": ("batching=tape batching.rows=8", nullcontext),
    "tape of 1,024": ("batching=tape algo.batch_size=1024", nullcontext),
    "tape of 256, lr=3e-4": ("batching=tape algo.lr=0.0003", nullcontext),
    "lr=3e-4": ("algo.lr=0.0003", nullcontext),
    "action_l2=0.01": ("algo.action_l2=0.01", nullcontext),
    "reward_scale=null": ("algo.reward_scale=null", nullcontext),
    "normalise_obs": ("encoder.normalise_obs=true", nullcontext),
    "encoder=plain": ("encoder=plain", nullcontext),
    "encoder=embeddings": ("encoder=embeddings", nullcontext),
    "no layer norm in the encoder": ("", without_norm),
    "torch's first weights": ("algo.head_init=torch", torchs_weights),
    "critic's step first": ("", critic_first),
    "targets after every update": ("algo.target_every=1", nullcontext),
    "8 slots, then 8 updates": ("algo.collect_slots=8", nullcontext),
    "actions in [-2, 2]": ("", actions_of_the_game),
    "time limits terminal": ("env.id=TerminalPendulum-v0", nullcontext),
}


def learn(name: str, seed: int) -> dict[str, Any]:
    """Train once: returns by thousands of steps, and the diagnostics of the last row of metrics."""
    lines, changed = CONTROLS[name]
    with TemporaryDirectory() as folder, changed(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        train(load([*BASE.split(), *lines.split(), f"seed={seed}", f"run_dir={folder}/run"]))
        text = (Path(folder) / "run" / "metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    curve = [round(row["eval/greedy/return_mean"], 1) for row in rows if "eval/greedy/return_mean" in row]
    last = next(row for row in reversed(rows) if "td3/action_spread" in row)
    spread, q = (round(last[f"td3/{key}"], 3) for key in ("action_spread", "q_spread"))
    return {"control": name, "seed": seed, "returns": curve, "action_spread": spread, "q_spread": q}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/peers/controls.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    entry = partial(gymnasium.make, "Pendulum-v1")
    gymnasium.register("TerminalPendulum-v0", entry_point=lambda **given: TerminalLimit(entry(**given)))
    options.out.touch()
    made = [json.loads(line) for line in options.out.read_text().splitlines()]
    for seed in range(options.seeds):
        for name in CONTROLS:
            if not any((run["control"], run["seed"]) == (name, seed) for run in made):
                made.append(learn(name, seed))
                with options.out.open("a") as file:
                    file.write(json.dumps(made[-1]) + "\n")
    print("| changed | at 4,000 steps | at 6,000 | at 8,000 | standing still |\n|---|---|---|---|---|")
    for name in CONTROLS:
        runs = [run for run in made if run["control"] == name]
        means = [f"{sum(run['returns'][i] for run in runs) / len(runs):,.0f}" for i in (1, 2, 3)]
        still = sum(run["action_spread"] < 0.02 for run in runs)
        print("|", " | ".join([name, *means, f"{still} of {len(runs)}"]), "|")


if __name__ == "__main__":
    main()
