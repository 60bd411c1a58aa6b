"""A GPU computes what the CPU computes, apart from rounding, and a run on it keeps its promises.

Without a GPU the same tests run on the CPU, so that they are known to work where there is one (`make gpu`).
"""

import subprocess
import sys

import pytest
import torch
from helpers import killed_at, make_memory, small_run, without_time
from replayed import generator
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from rlmem.batching import Rollout
from rlmem.evidence.bench.train import training_loop
from rlmem.record.recorder import read_jsonl
from rlmem.run.assemble import choose_device
from rlmem.run.train import resume

pytestmark = pytest.mark.gpu
DEVICE = choose_device("auto")
THERE = DEVICE.type == "cuda"
CPU = torch.device("cpu")
CLOSE = {"rtol": 2e-3, "atol": 2e-4}
"""Of float32, where sums over many slots are taken in another order."""
FAST = ("ffm", "gru")
SOME = [
    pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
    for name in (*FAST, "lstm", "lru", "gpt", "shm", "mlstm", "fwp", "s6")
]


def values_and_gradients(memory, device):
    """Outputs, final state and gradients, on a device, of the same weights and the same two rows with a start each."""
    memory = memory.to(device)
    x = torch.randn(2, 70, memory.input_size, generator=generator(1)).to(device).requires_grad_()
    start = torch.zeros(2, 70, dtype=torch.bool, device=device)
    start[:, 0] = start[0, 33] = start[1, 69] = True
    y, state = memory(x, memory.initial_state(2), start)
    leaves = [x, *(p for p in memory.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(y.square().mean(), leaves, allow_unused=True)
    found = [y.detach(), *tree_leaves(state), *(g for g in gradients if g is not None)]
    return [(torch.view_as_real(v) if v.is_complex() else v).detach().cpu() for v in found]


@pytest.mark.parametrize("name", SOME)
def test_a_memory_has_the_same_values_and_gradients(name):
    memory = make_memory(name, 8)
    expected = values_and_gradients(memory, CPU)
    for found, value in zip(values_and_gradients(memory, DEVICE), expected, strict=True):
        torch.testing.assert_close(found, value, **CLOSE)


ONE = ["memory.hidden_size=16", "encoder.hidden_size=16", "env=repeat_first", "env.num_envs=4", "total_steps=600"]
UPDATES = {
    "ppo": [*ONE, "algo=ppo", "algo.rollout_slots=60", "algo.epochs=1", "algo.num_minibatches=1"],
    "dqn": [*ONE, "algo=dqn", "algo.batch_size=100", "algo.record_every=400"],
}
UPDATES["dqn"] += ["algo.random_steps=100", "algo.learning_starts=500"]


@pytest.mark.slow
@pytest.mark.parametrize("memory", SOME)
@pytest.mark.parametrize("batching", ["batching=tape", "batching=segment batching.length=10"])
@pytest.mark.parametrize("name", UPDATES)
def test_an_update_has_the_same_losses(name, batching, memory, tmp_path):
    """From the same weights and the same data, which the CPU collected."""
    overrides = [f"memory={memory}", *UPDATES[name], *batching.split()]
    here, there = (training_loop([*overrides, f"device={device.type}"], tmp_path) for device in (CPU, DEVICE))
    there.agent.load_state_dict(here.agent.state_dict())
    there.algo.load_state_dict(here.algo.state_dict())
    if name == "ppo":
        rollout, _ = here.collect()
        moved = tree_map_only(Tensor, lambda x: x.to(DEVICE), vars(rollout) | {"streams": None})
        other = Rollout(**moved | {"streams": rollout.streams.map(lambda x: x.to(DEVICE))})
        found = [here.algo.update(rollout, here.batching, 0.0), there.algo.update(other, there.batching, 0.0)]
    else:
        here.iterate()
        batch = here.replay.sample(here.batching, 100, generator(0)).batch
        found = [here.algo.update(batch)[0], there.algo.update(batch.map(lambda x: x.to(DEVICE)))[0]]
    ours, theirs = ({key: float(value) for key, value in metrics.items()} for metrics in found)
    assert len(ours) > 3
    assert ours == pytest.approx(theirs, rel=5e-3, abs=1e-4)


RUN = [*ONE, f"device={DEVICE.type}", "evaluation.episodes=2", "evaluation.every=null", "total_steps=512"]
PPO = [*RUN, "algo=ppo", "algo.rollout_slots=32"]
SAC = [*RUN, "env=position_only_pendulum", "algo=sac", "algo.batch_size=64", "algo.record_every=128"]
SAC += ["algo.random_steps=100", "algo.learning_starts=250", "algo.update_ratio=0.05", "env.num_envs=1"]


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["batching=tape", "batching=segment batching.length=10"])
@pytest.mark.parametrize("memory", SOME)
def test_training_reads_what_acting_read(memory, batching, in_tmp):
    small_run(*PPO, f"memory={memory}", *batching.split(), base=())
    deviations = [row["ppo/ratio_max_dev"] for row in read_jsonl(in_tmp / "run/metrics.jsonl") if "update" in row]
    assert len(deviations) >= 4
    assert max(deviations) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("choices", [PPO, SAC], ids=["ppo", "sac"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(choices, in_tmp):
    """On a CPU digit by digit. On a GPU sums may be taken in another order."""
    often = [*choices, "memory=gru", "checkpoint.every=128"]
    small_run(*often, base=(), run_dir="whole")
    with killed_at(4):
        small_run(*often, base=(), run_dir="cut")
    resume(in_tmp / "cut", [])
    whole, cut = without_time("whole"), without_time("cut")
    assert len(whole) > 4
    if not THERE:
        assert cut == whole
    for row, other in zip(cut, whole, strict=True):
        assert row == pytest.approx(other, rel=1e-2, abs=1e-3, nan_ok=True)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_train_one_run(in_tmp):
    command = [sys.executable, "-m", "rlmem", "train", *PPO, "memory=gru", "trainer.devices=2", "run_dir=run"]
    subprocess.run(command, check=True, timeout=300)
    deviations = [row["ppo/ratio_max_dev"] for row in read_jsonl(in_tmp / "run/metrics.jsonl") if "update" in row]
    assert len(deviations) >= 4
    assert max(deviations) < 1e-4
