"""sheeprl: its recurrent PPO as its command line runs it, which waits where an iteration begins."""

import sys

from sheeprl.algos.ppo_recurrent import ppo_recurrent
from sheeprl.cli import run


def train(setting, turn):
    anneal, slots = ppo_recurrent.anneal, setting.envs * setting.slots

    def wait_and_anneal(cfg, optimizer, iteration, *rest):
        turn((iteration - 1) * slots)
        anneal(cfg, optimizer, iteration, *rest)

    ppo_recurrent.anneal = wait_and_anneal  # called once, where an iteration begins
    sys.argv[1:] = [
        *("exp=ppo_recurrent", "fabric.accelerator=cpu", "num_threads=1"),
        *("env.id=RepeatPreviousEasy", "env.wrapper._target_=games.repeat_previous", "~env.wrapper.id"),
        *("env.sync_env=True", "env.capture_video=False", f"env.num_envs={setting.envs}"),
        *(f"algo.rollout_steps={setting.slots}", f"algo.per_rank_sequence_length={setting.slots}"),
        *(f"algo.update_epochs={setting.epochs}", f"algo.per_rank_num_batches={setting.minibatches}"),
        *("algo.encoder.mlp_layers=2", f"algo.encoder.dense_units={setting.encoder}"),
        *("algo.encoder.mlp_features_dim=null", f"algo.rnn.lstm.hidden_size={setting.width}"),
        *("algo.mlp_layers=2", f"algo.dense_units={setting.heads}", f"algo.optimizer.lr={setting.lr}"),
        *("algo.normalize_advantages=True", f"algo.total_steps={10**6 * slots}", f"metric.log_every={slots}"),
        *("checkpoint.every=0", "hydra.run.dir=."),
    ]
    run()
