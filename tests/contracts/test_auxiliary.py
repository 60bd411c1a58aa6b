"""An algorithm derived from ours with `auxiliary_loss`: its parameters are trained, saved and resumed."""

from pathlib import Path

import pytest
import torch
from helpers import assert_resumes_exactly, fast_only, small_run

from rlmem.core.errors import UserError
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl

CLASSES = {
    "ppo": "ppo.PPO", "impala": "impala.Impala", "pqn": "pqn.PQN", "dqn": "dqn.DQN", "sac": "sac.SAC",
    "sacd": "sac.SACD", "td3": "td3.TD3",
}  # fmt: skip
MODULE = """
from torch import nn
from rlmem.algos.{module} import {base}

class Own({base}):
    def make_agent(self, trunks, action_space):
        agent = super().make_agent(trunks, action_space)
        agent.auxiliary = nn.Linear(agent.trunks.critic.output_size, 1)
        return agent

    def auxiliary_loss(self, batch, features):
        assert features.shape[:2] == batch.mask.shape and features.requires_grad
        return (self.agent.auxiliary(features)[..., 0] - batch.reward)[batch.mask].square().mean()
"""
OFF = ("algo.learning_starts=50", "algo.random_steps=50", "algo.batch_size=40", "algo.record_every=100",
       "algo.update_ratio=0.1", "batching=short_segments")  # fmt: skip
ON = ("algo.rollout_slots=25",)


@pytest.mark.parametrize("name", fast_only(["ppo"], CLASSES))
def test_an_auxiliary_loss_trains_and_resumes_with_every_algorithm(in_tmp, monkeypatch, name):
    module, base = CLASSES[name].split(".")
    (in_tmp / f"own_{name}.py").write_text(MODULE.format(module=module, base=base))
    (in_tmp / "conf" / "algo").mkdir(parents=True)
    yaml = f"# {name} with an auxiliary loss\ndefaults:\n  - {name}\n_target_: own_{name}.Own\n"
    (in_tmp / "conf" / "algo" / "own.yaml").write_text(yaml)
    monkeypatch.syspath_prepend(in_tmp)
    env = "position_only_pendulum" if name in ("sac", "td3") else "repeat_first"
    settings = ("algo=own", f"env={env}", *(ON if name in ("ppo", "impala", "pqn") else OFF), "algo.head_sizes=[8]")
    settings += ("total_steps=250", "checkpoint.every=60", "evaluation.max_steps=10")
    base_lines = ("memory=gru", "memory.hidden_size=8", "env.num_envs=2", "evaluation.episodes=2")
    assert_resumes_exactly(lambda run_dir: small_run(*settings, run_dir=run_dir, base=base_lines), 3)
    states = [torch.load(path, weights_only=True)["agent"] for path in Checkpoints(Path("whole/checkpoints")).paths()]
    assert len(states) > 1 and not torch.equal(*(state["auxiliary.weight"] for state in states[-2:]))
    assert any("own/auxiliary_loss" in row for row in read_jsonl(in_tmp / "whole" / "metrics.jsonl"))


def test_an_auxiliary_loss_that_is_no_scalar_is_named(in_tmp):
    lines = ("from rlmem.algos.ppo import PPO", "class Rows(PPO):", "    def auxiliary_loss(self, batch, features):")
    (in_tmp / "own_rows.py").write_text("\n".join([*lines, "        return features.sum(-1)"]))
    with pytest.raises(UserError, match=r"Rows\.auxiliary_loss: .* scalar"):
        small_run("algo=own_rows.Rows")
