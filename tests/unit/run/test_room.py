"""What cannot fit into the memory of the machine is refused by the key to make smaller, before anything is written."""

import pytest
import torch

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.run.assemble import assemble
from rlmem.run.forecast import memory_of

THERE = memory_of(torch.device("cpu"))
MANY = int(THERE / 5_000)
"""Environments that fit, with one observation each, and whose memory states (FFM: 3 kB each while acting) do not."""

REFUSED = {
    "env.num_envs=1000000000": "e.g. env.num_envs=64",
    f"env.num_envs={MANY}": "e.g. env.num_envs=",
    f"env.num_envs={MANY} env=gym env.id=CartPole-v1": "e.g. env.num_envs=",
    "algo.rollout_slots=1000000000 total_steps=1000000000000": "e.g. algo.rollout_slots=128",
    f"algo.capacity={int(THERE)} algo=dqn total_steps=1000000000000000": "a smaller algo.capacity",
    f"env.num_envs={MANY * 3} algo=dqn": "e.g. env.num_envs=",
}
"""What is too large, first, and what else it takes -> the end of the answer."""


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_does_not_fit_is_one_line_and_nothing_is_written(number, in_tmp, capsys):
    overrides = [*REFUSED][number].split()
    for dry in (["--dry-run"], []):
        assert main(["train", *dry, "device=cpu", *overrides]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"rlmem: error: {overrides[0]}: ") and " of memory or more, and " in line
        assert [*REFUSED.values()][number] in line
    assert not list(in_tmp.iterdir())


@pytest.mark.parametrize(
    "overrides",
    [
        ["env.num_envs=4096"],
        ["algo.rollout_slots=1000000000", "total_steps=1000"],  # which ends the rollout
        ["algo=dqn", f"algo.capacity={int(THERE)}", "total_steps=200000"],  # which ends the replay
        ["algo=dqn", f"algo.capacity={int(THERE)}", "total_steps=1000000000000000", "algo.replay_dir=."],
    ],
)
def test_what_fits_is_accepted(overrides, in_tmp, capsys):
    assert main(["train", "--dry-run", "device=cpu", *overrides]) == 0


def test_many_environments_are_all_made_in_the_end():
    parts = assemble(load(["env.num_envs=1500", "memory=mlp", "device=cpu"]))
    assert parts.env.num_envs == parts.num_envs == 1500
