"""Overrides of the small runs that several test files train."""

OFF_POLICY = ("dqn", "sac", "sacd", "td3")
SCHEMES = {"tape": ["batching=tape"], "segment": ["batching=segment", "batching.length=6"]}
DISCRETE, CONTINUOUS = "env=repeat_first", "env=position_only_pendulum"
MATRIX = [
    "env.num_envs=32", "env.max_episode_steps=15", "encoder.hidden_size=16", "algo.head_sizes=[16]", "total_steps=1000",
    "evaluation.every=null", "evaluation.episodes=2", "checkpoint.every=null", "threads=1", "run_dir=run",
]  # fmt: skip
"""Any memory with any algorithm: 1,000 steps in 32 environments, with REPLAYED or a value of LIVED."""
REPLAYED = ["algo.batch_size=100", "algo.update_ratio=0.01", "algo.random_steps=300", "algo.learning_starts=300"]
LIVED = {
    "ppo": ["algo.rollout_slots=16", "algo.epochs=1", "algo.num_minibatches=2"],
    "impala": ["algo.rollout_slots=16"],
    "pqn": ["algo.rollout_slots=16", "algo.epochs=1", "algo.num_minibatches=2"],
}

SHORT = [
    "env.num_envs=4", "algo.num_minibatches=2", "algo.rollout_slots=32", "algo.epochs=1", "memory.hidden_size=16",
    "encoder.hidden_size=16", "algo.head_sizes=[16]", "total_steps=500", "evaluation.every=200",
    "evaluation.episodes=2", "checkpoint.every=150", "threads=1",
]  # fmt: skip
"""PPO with any memory in 500 steps, with evaluations and checkpoints in between."""
AGENT = [
    "memory=gru", "memory.hidden_size=8", "encoder.hidden_size=8", "env.num_envs=4", "algo.num_minibatches=2",
    "algo.rollout_slots=32", "algo.epochs=1", "algo.head_sizes=[8]", "total_steps=500", "evaluation.every=200",
    "evaluation.episodes=4", "checkpoint.every=100", "threads=1",
]  # fmt: skip
RECALL = ["env=count_recall", "env.max_episode_steps=20", *AGENT]
"""PPO with a small GRU in 500 steps."""
CUE_DQN = [
    "env=two_step_cue", "algo=dqn", "memory=gru", "memory.hidden_size=8", "encoder.hidden_size=8", "env.num_envs=4",
    "algo.batch_size=32", "algo.random_steps=50", "algo.learning_starts=50", "algo.update_ratio=0.2",
    "algo.record_every=50", "algo.head_sizes=[8]", "total_steps=500", "evaluation.every=200", "evaluation.episodes=4",
    "checkpoint.every=100", "threads=1",
]  # fmt: skip
"""DQN with a small GRU in 500 steps."""

REPLAY = [
    "env.num_envs=4", "memory.hidden_size=8", "encoder.hidden_size=8", "algo.head_sizes=[8]", "algo.batch_size=40",
    "algo.random_steps=100", "algo.learning_starts=100", "algo.record_every=100", "algo.update_ratio=0.02",
    "total_steps=500", "evaluation.every=null", "evaluation.episodes=2", "checkpoint.every=150", "threads=1",
]  # fmt: skip
"""Any off-policy algorithm in 500 steps, with a value of REPLAY_TASKS and one of REPLAY_CHOICES."""
REPLAY_TASKS = {
    "dqn": ["algo=dqn", "env=count_recall", "env.max_episode_steps=20"],
    "sacd": ["algo=sacd", "env=repeat_first", "env.max_episode_steps=15"],
    "sac": ["algo=sac", "env=position_only_pendulum", "env.max_episode_steps=20"],
    "td3": ["algo=td3", "env=position_only_pendulum", "env.max_episode_steps=15"],
}
REPLAY_CHOICES = {
    "tape": ["batching=tape", "memory=ffm"],
    "segments": ["batching=segment", "batching.length=8", "batching.burn_in=3", "batching.running=true", "memory=gru"],
}

CUE = [
    "env=two_step_cue", "memory=gru", "memory.hidden_size=4", "encoder.hidden_size=4", "env.num_envs=2",
    "algo.num_minibatches=1", "algo.rollout_slots=8", "algo.epochs=1", "algo.head_sizes=[4]", "total_steps=32",
    "evaluation.episodes=2",
]  # fmt: skip
"""PPO with a tiny GRU in 32 steps."""
