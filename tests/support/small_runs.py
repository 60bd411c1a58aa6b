"""Overrides of the small runs that several test files train."""

OFF_POLICY = ("dqn", "sac", "sacd", "td3")
SCHEMES = {"tape": ["batching=tape"], "segment": ["batching=segment", "batching.length=6"]}
DISCRETE, CONTINUOUS = "env=repeat_first", "env=position_only_pendulum"
MATRIX = [
    "env.num_envs=32", "env.max_episode_steps=15", "encoder.hidden_size=16", "algo.head_sizes=[16]", "total_steps=1000",
    "evaluation.every=null", "evaluation.episodes=2", "evaluation.max_steps=15", "checkpoint.every=null", "threads=1",
    "run_dir=run",
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
RECALL = ["env=count_recall", "env.max_episode_steps=20", "evaluation.max_steps=20", *AGENT]
"""PPO with a small GRU in 500 steps."""
CUE_DQN = [
    "env=two_step_cue", "algo=dqn", "memory=gru", "memory.hidden_size=8", "encoder.hidden_size=8", "env.num_envs=4",
    "algo.batch_size=32", "algo.random_steps=50", "algo.learning_starts=50", "algo.update_ratio=0.2",
    "algo.record_every=50", "algo.head_sizes=[8]", "total_steps=500", "evaluation.every=200", "evaluation.episodes=4",
    "evaluation.max_steps=20", "checkpoint.every=100", "threads=1",
]  # fmt: skip
"""DQN with a small GRU in 500 steps."""

REPLAY = [
    "env.num_envs=4", "memory.hidden_size=8", "encoder.hidden_size=8", "algo.head_sizes=[8]", "algo.batch_size=40",
    "algo.random_steps=100", "algo.learning_starts=100", "algo.record_every=100", "algo.update_ratio=0.02",
    "total_steps=500", "evaluation.every=null", "evaluation.episodes=2", "evaluation.max_steps=30",
    "checkpoint.every=150", "threads=1",
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
    "evaluation.episodes=2", "evaluation.max_steps=20",
]  # fmt: skip
"""PPO with a tiny GRU in 32 steps."""

CARTPOLE = [
    "env=gym", "env.id=CartPole-v1", "env.num_envs=3", "env.max_episode_steps=30", "memory=gru", "memory.hidden_size=4",
    "encoder.hidden_size=4", "algo.rollout_slots=16", "algo.num_minibatches=1", "algo.epochs=1", "total_steps=400",
    "evaluation.episodes=2", "checkpoint.every=48", "evaluation.every=200", "algo.head_sizes=[4]",
]  # fmt: skip
"""PPO with a tiny GRU in CartPole."""
DICTIONARY = [
    "env=gym", "env.id=leafy:Leafy-v0", "env.kwargs.kind=dict", "env.kwargs.mask=leaf", "env.kwargs.actions=multi",
    "env.num_envs=4", "memory=gru", "memory.hidden_size=8", "encoder.normalise_obs=true", "algo.separate=true",
    "algo.head_sizes=[8]", "algo.rollout_slots=12", "batching=segment", "batching.length=4", "total_steps=160",
    "evaluation.episodes=4", "evaluation.max_steps=9", "evaluation.every=80", "checkpoint.every=40", "threads=1",
]  # fmt: skip
"""Observations of several parts, action masks and separate networks."""

DECIDE = [
    "algo=decision_model", "env=pendulum", "env.horizon=20", "env.num_envs=4", "algo.dataset=p.hdf5",
    "algo.context=6", "algo.batch_size=8", "algo.drop_every=3", "algo.eval_drops=[0,0.5]", "algo.lr=0.01",
    "algo.warmup_updates=20", "algo.record_every=480", "encoder.hidden_size=8", "memory.hidden_size=8",
    "total_steps=3000", "evaluation.every=1500", "evaluation.episodes=3", "evaluation.max_steps=20",
    "checkpoint.every=700", "threads=1",
]  # fmt: skip
"""A decision model of the recorded episodes in p.hdf5."""
CLASSIFY = [
    "algo=classify", "env=temporal_order", "env.shorten=10", "algo.batch_size=16", "algo.truncation=4", "algo.lr=0.01",
    "algo.record_every=1000", "total_steps=6000", "evaluation.every=2000", "evaluation.episodes=40",
    "checkpoint.every=1500", "threads=1",
]  # fmt: skip
"""A classifier of sequences, with a value of CLASSIFIERS."""
CLASSIFIERS = {
    "lprnn": [
        "memory=lprnn", "memory.hidden_size=4", "algo.head_sizes=null", "memory.pool_size=8", "memory.num_pools=4",
        "memory.viewport_size=8", "memory.summariser_size=32", "memory.base=1.5",
    ],
    "lprnn_parallel": [
        "memory=lprnn_parallel", "memory.hidden_size=4", "algo.head_sizes=null", "memory.num_pools=4",
        "memory.viewport_size=6", "memory.summariser_size=16", "encoder=embeddings", "encoder.obs_size=8",
        "encoder.action_size=0", "encoder.reward_size=0",
    ],
    "lstm": ["memory=lstm", "memory.hidden_size=16", "algo.head_sizes=[16]"],
    "ffm": ["memory=ffm", "memory.hidden_size=16", "encoder=mlp", "encoder.hidden_size=8", "algo.reset=true"],
    "gpt": ["memory=gpt", "memory.hidden_size=16", "memory.window=16"],
}  # fmt: skip
MODEL = [
    "algo=state_model", "env=pendulum_p", "algo.dataset=p.hdf5", "algo.window=8", "algo.batch_size=8",
    "encoder.hidden_size=8", "algo.record_every=640", "total_steps=6000", "evaluation.every=2000",
    "evaluation.episodes=20", "checkpoint.every=1500", "algo.lr=0.01", "threads=1",
]  # fmt: skip
"""A model of the states in p.hdf5."""
