"""A run that dies and is resumed ends as one that went through: the same record and the same checkpoint."""

from itertools import product

import pytest
from helpers import assert_resumes_exactly, fast_only, options, small_run
from recordings import provide_recording
from small_runs import (
    CARTPOLE,
    CLASSIFIERS,
    CLASSIFY,
    DECIDE,
    DICTIONARY,
    MODEL,
    REPLAY,
    REPLAY_CHOICES,
    REPLAY_TASKS,
    SHORT,
)

RECALL = [*SHORT, "env=count_recall", "evaluation.every=null", "total_steps=400"]
MEMORIES = {
    f"{memory} {scheme}": ([*RECALL, f"memory={memory}", f"batching={scheme}"], 4)
    for memory, scheme in product(options("memory"), ("tape", "segment"))
}
OPTIONS = {
    "dqn": ["algo.priority_exponent=0.6", "algo.n_step=3"],
    "sacd": ["algo.update_per=episode", "algo.update_ratio=0.5"],
    "sac": ["batching.detach_every=4", "algo.max_grad_norm=1", "encoder.normalise_obs=true"],
    "td3": ["algo.replay_dir=mapped", "algo.capacity=200", "algo.policy_delay=3"],
}
REPLAYS = {
    f"{name} {choice}": ([*REPLAY, *REPLAY_TASKS[name], *REPLAY_CHOICES[choice], *OPTIONS[name]], 4)
    for name, choice in product(REPLAY_TASKS, REPLAY_CHOICES)
}
BY_EPISODE = [*REPLAY, "algo=dqn", "env=repeat_first", "env.max_episode_steps=30", "algo.epsilon_per=episode"]
EXPLORATION = {f"by episode {name}": ([*BY_EPISODE, *choice], 4) for name, choice in REPLAY_CHOICES.items()}
IMPALA = [
    "algo=impala", "memory.hidden_size=8", "encoder.hidden_size=8", "algo.head_sizes=[8]", "env.max_episode_steps=15",
    "evaluation.episodes=2", "env.num_envs=4", "algo.rollout_slots=10", "total_steps=501", "checkpoint.every=100",
    "evaluation.every=200", "algo.momentum=0.5",
]  # fmt: skip
OTHERS = {
    "impala gpt": ([*IMPALA, "memory=gpt", "batching=segment"], 6),
    "impala lprnn": ([*IMPALA, "memory=lprnn", "batching.detach_every=3"], 6),
    **{f"parts and masks {algo}": ([*DICTIONARY, f"algo={algo}"], 3) for algo in ("ppo", "impala")},
    "wrappers": (
        [*CARTPOLE, "wrapper=[remove_velocity,flicker,dropout,noise,mask,delay,frame_stack]",
         "wrapper.remove_velocity.indices=[1,3]", "wrapper.mask.indices=[0]"], 6,
    ),
    "wrappers of time": (
        [*CARTPOLE, "wrapper=[random_start,repeat,rl2]", "wrapper.random_start.steps=3", "wrapper.repeat.steps=2"], 6,
    ),
    "dt": ([*DECIDE, "memory=gpt", "memory.window=6", "algo.drop_information=true"], 4),
    "drnn": ([*DECIDE, "memory=lstm"], 4),
    "dlrnn": ([*DECIDE, "memory=lru", "memory.block=ffn"], 4),
    **{f"classify {name}": ([*CLASSIFY, *network], 5) for name, network in CLASSIFIERS.items()},
    "model of the first state": ([*MODEL, "algo.predict=initial", "memory=lru", "memory.hidden_size=8"], 5),
    "model of the state": (
        [*MODEL, "algo.predict=current", "algo.target=hidden", "memory=gru", "memory.hidden_size=8"], 5,
    ),
}  # fmt: skip
RUNS = MEMORIES | REPLAYS | EXPLORATION | OTHERS
"""Name -> the overrides of a run, and the iteration of its loop before which it dies."""
FAST = {
    "ffm tape", "dqn tape", "sac segments", "dt", "classify lprnn", "model of the state",
}  # fmt: skip
"""Complex states and windows, both kinds of replay, and every other kind of loop."""


@pytest.mark.parametrize("name", fast_only(FAST, RUNS))
def test_a_killed_run_resumes_exactly(in_tmp, name):
    overrides, iteration = RUNS[name]
    if "algo.dataset=p.hdf5" in overrides:
        provide_recording()
    assert_resumes_exactly(lambda run_dir: small_run(*overrides, run_dir=run_dir, base=()), iteration)
