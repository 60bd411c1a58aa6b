"""What the names in metrics.jsonl mean (`rlmem list metric`)."""

import re

EVERY, ACTS, ON, REPLAY, READS, CONTINUOUS = (
    "every run", "agents that learn by acting", "on-policy algorithms", "algorithms with a replay",
    "supervised algorithms", "continuous actions",
)  # fmt: skip
"""Who logs a metric."""
METRICS: dict[str, tuple[str, str]] = {
    "step": (EVERY, "environment steps so far, of supervised algorithms slots read: the x axis of every curve"),
    "update": (EVERY, "updates so far: rollouts learnt from, or gradient steps from a replay or on a window"),
    "train/episodes": (ACTS, "episodes that ended in this iteration"),
    "train/return_mean": (ACTS, "mean return of these episodes; left out if the rollout broke others off"),
    "train/length_mean": (ACTS, "mean length of these episodes in steps, likewise"),
    "train/return_last_100": (ACTS, "mean return of the newest 100 episodes, which the progress bar shows"),
    "eval/POLICY/return_mean": (ACTS, "mean return of the evaluation episodes, of the greedy or the sampled policy"),
    "eval/POLICY/length_mean": (ACTS, "mean length of the evaluation episodes in steps"),
    "eval/POLICY/success_rate": (ACTS, "share of evaluation episodes that were won, where the environment says so"),
    "eval/POLICY/unfinished": (ACTS, "evaluation episodes cut at evaluation.max_steps, if there are any"),
    "eval/greedy/best": (ACTS, "largest eval/greedy/return_mean so far, whose agent is kept as `best`"),
    "eval/drop_RATE/return_mean": (
        "decision_model",
        "mean return of the evaluation episodes in which frames are dropped",
    ),
    "eval/drop_RATE/length_mean": ("decision_model", "mean length of these episodes in steps"),
    "eval/drop_RATE/success_rate": ("decision_model", "share of them that were won, where the environment says so"),
    "eval/drop_RATE/unfinished": ("decision_model", "those cut at evaluation.max_steps, if there are any"),
    "ALGO/lr": (ON, "learning rate of the update"),
    "ALGO/policy_loss": ("ppo, impala", "loss of the policy, the mean over gradient steps"),
    "ALGO/value_loss": ("ppo, impala", "loss of the values, before it is weighed by algo.value_coef"),
    "ALGO/entropy": ("on-policy algorithms, sac, sacd", "mean entropy of the policy, in nats"),
    "ALGO/value_mean": ("ppo, impala", "mean value of the acted slots"),
    "ALGO/ratio_max_dev": (
        "ppo, impala",
        "largest |ratio - 1| before the first gradient step: training reads what acting read",
    ),
    "ALGO/grad_norm": (ON, "norm of the gradient before it is clipped"),
    "ALGO/kl": ("ppo", "mean KL divergence from the policy that acted"),
    "ALGO/kl_coef": ("ppo", "weight of the KL penalty, if there is one"),
    "ALGO/clip_fraction": ("ppo", "share of slots whose probability ratio is outside of the clip range"),
    "ALGO/explained_variance": ("ppo", "share of the targets' variance that the values explain: 1 is perfect"),
    "ALGO/lambda_discrepancy": (
        "ppo",
        "root mean square of the difference of both critics' values, with algo.ld_weight, in units of scaled rewards",
    ),
    "ALGO/reward_scale": ("ppo, pqn", "factor on the rewards that were learnt from"),
    "ALGO/lag": ("impala", "updates between the weights that acted and those that learnt"),
    "ALGO/rho_mean": ("impala", "mean truncated importance ratio of V-trace; 1 if on-policy"),
    "ALGO/loss": ("dqn, pqn", "loss of the values"),
    "ALGO/td_error": ("dqn, pqn", "mean size of the TD errors"),
    "ALGO/critic_loss": ("sac, sacd, td3", "squared errors of the twin critics, summed over both"),
    "ALGO/actor_loss": ("sac, sacd, td3", "loss of the policy"),
    "ALGO/temperature": ("sac, sacd", "weight of the entropy"),
    "ALGO/q_mean": (f"{REPLAY}, pqn", "mean value of the actions taken, in units of scaled rewards"),
    "ALGO/target_mean": (f"{REPLAY}, pqn", "mean target of these values"),
    "ALGO/PART_grad_norm": (REPLAY, "norm of the gradient of one part of the network, before it is clipped"),
    "ALGO/feature_rank": (ACTS, "effective rank of the critic's features: it falls as a network loses plasticity"),
    "ALGO/q_spread": (f"{REPLAY}, pqn", "how far the best and the worst action are apart in value"),
    "ALGO/actions_at_bounds": (CONTINUOUS, "share of action components at a bound: 1 is a saturated policy"),
    "ALGO/action_spread": (
        CONTINUOUS,
        "standard deviation of actions over slots: 0 is a policy that ignores its input",
    ),
    "ALGO/auxiliary_loss": (ACTS, "loss that a method `auxiliary_loss` of the algorithm adds, if it has one"),
    "explore/epsilon": ("dqn, pqn", "chance of a random action"),
    "batch/rows": (ACTS, "rows of a batch"),
    "batch/episodes": (ACTS, "episodes of which a batch holds a part"),
    "batch/transitions": (ACTS, "acted slots of a batch, which are what losses are means over"),
    "batch/pad_fraction": (ACTS, "share of a batch's slots that are padding"),
    "replay/transitions": (REPLAY, "transitions in the replay"),
    "replay/episodes": (REPLAY, "complete episodes in the replay"),
    "actors/restarts": ("impala", "actors that were started again, with algo.actors"),
    "train/loss": ("classify, decision_model", "mean cross-entropy of the answers"),
    "train/accuracy": ("classify, decision_model", "share of right answers"),
    "train/accuracy_smoothed": ("classify, decision_model", "the same as an exponential mean over windows"),
    "train/mse": ("state_model, decision_model", "mean squared error of the standardised state, or of the actions"),
    "train/mse_smoothed": ("state_model, decision_model", "the same as an exponential mean over windows"),
    "train/answers": (READS, "targets that were answered in this iteration"),
    "eval/loss": ("classify", "mean cross-entropy on sequences that training does not read"),
    "eval/accuracy": ("classify", "share of right answers there"),
    "eval/mse": ("state_model", "mean squared error on held-out episodes"),
    "eval/score": (READS, "the score that evaluations are compared by, larger for better"),
    "eval/best": (READS, "largest eval/score so far, whose agent is kept as `best`"),
    "nan/skipped": (EVERY, "gradient steps that were left out so far, with on_nan=skip"),
    "time/elapsed": (EVERY, "seconds spent on training, without evaluations"),
    "time/cpu": (EVERY, "seconds of all cores that this process used in that time; other processes do not count"),
    "time/steps_per_second": (EVERY, "environment steps per second of that time"),
    "time/env": (ACTS, "share of that time spent in the environments"),
    "time/act": (ACTS, "share spent on acting"),
    "time/learn": (EVERY, "share spent on learning"),
    "time/sample": (REPLAY, "share spent on drawing batches, which is a part of learning"),
    "time/wait": ("impala", "share spent on waiting for actors, with algo.actors"),
    "time/data": (READS, "share spent on making windows of data"),
}
"""Name -> who logs it, and its meaning. ALGO is the name of the algorithm, POLICY is greedy or sampled, RATE a
probability, and PART is a part of the network, such as critic."""

PLACES = {"ALGO": r"\w+", "POLICY": "(?:greedy|sampled)", "RATE": r"[\d.e-]+", "PART": r"\w+"}
"""Words of names -> what may stand in their place."""


def entry(key: str) -> str | None:
    """The name in METRICS of a key of metrics.jsonl; None: it is not described."""
    if key in METRICS:
        return key
    return next((name for name in METRICS if re.fullmatch(_pattern(name), key)), None)


def _pattern(name: str) -> str:
    return re.sub("|".join(PLACES), lambda found: PLACES[found[0]], name)
