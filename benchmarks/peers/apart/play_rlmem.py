"""rlmem, as the peers of `apart.py` train beside it."""

from pathlib import Path

from rlmem.bench.train import training_loop


def train(setting, turn):
    folder = Path("run")
    folder.mkdir()
    overrides = [
        *("env=repeat_previous", "algo=ppo", "evaluation.every=null", "device=cpu", "total_steps=1000000000"),
        *(f"memory={setting.memory}", f"memory.hidden_size={setting.width}", f"env.num_envs={setting.envs}"),
        *(f"encoder.hidden_size={setting.encoder}", f"algo.head_sizes=[{setting.heads},{setting.heads}]"),
        *(f"algo.rollout_slots={setting.slots}", f"algo.epochs={setting.epochs}"),
        *(f"algo.num_minibatches={setting.minibatches}", f"algo.lr={setting.lr}"),
    ]
    loop = training_loop([*overrides, *setting.ours], folder)
    while True:
        turn(loop.collector.steps)
        loop.iterate()
