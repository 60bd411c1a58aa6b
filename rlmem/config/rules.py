"""Defaults that depend on other choices. What is given on the command line wins, and `rlmem config` says why.

They hold for the general options of an algorithm. Published settings (`ppo_popgym`, `dqn_memoroid`, `r2d2`) stay as
they are.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

OFF_POLICY = ("dqn", "sac", "sacd", "td3")
STATELESS = ("mlp",)
"""The memories without a state."""
TRANSITIONS = 256
"""Transitions of an update that reads them one by one, or in short segments."""
N_STEP = 5
"""Rewards in a target of DQN, if rows hold as many."""
UPDATES = 75_000
"""Updates of an off-policy run, as many as 0.05 per step are in 1.5 million steps."""
FEWEST_UPDATES = 100
"""A run that will make fewer updates says so."""
STEPS_PER_ENV = 5_000
"""Steps of an off-policy run per environment: of many environments, the first episodes end late."""
TAU = 0.01
"""How fast the target network of DQN follows where there is an update every two steps."""
MINIBATCH = 64
"""Single transitions that the rules leave at least in a minibatch of PPO: smaller ones cost as much time each."""
FEWEST_ENVS, FEWEST_SLOTS = 8, 32
"""The least that the rules leave of PPO's environments, and of the slots that a memoryless agent collects in each."""


class Rule(NamedTuple):
    """A default: a group or the dotted path of a key, its value, and why."""

    path: str
    value: Any
    why: str


def choices(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Rule]:
    """Options of groups that follow from the options of others.

    chosen: the option of each group
    given: the values that were given, by their paths; the width of an encoder's layers asks for one that has some
    """
    gym, off_policy = chosen["env"] == "gym", chosen["algo"] in OFF_POLICY
    n_step = given.get("algo.n_step", N_STEP if gym and chosen["algo"] == "dqn" else 1)
    several = isinstance(n_step, int) and n_step > 1
    if chosen["memory"] in STATELESS and off_policy and several:
        yield Rule("batching", "short_segments", "a memory without state needs rows as long as its returns, no longer")
    elif chosen["memory"] in STATELESS and (off_policy or (gym and chosen["algo"] == "ppo")):
        yield Rule("batching", "transitions", "a memory without state gains nothing from longer rows")
    widths = any(path.startswith("encoder.") and path.endswith("_size") for path in given)
    if chosen["memory"] in STATELESS and off_policy and gym and not widths:
        yield Rule("encoder", "plain", "memory and heads have layers enough: values of deeper networks spread too late")


def values(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[Rule]:
    """Values that follow from others, each from what the rules before it left.

    given: the values of a run, nested; whoever takes a rule up writes it here before asking for the next
    chosen: the option of each group
    """
    steps, algo, num_envs = given["total_steps"], given["algo"], given["env"].get("num_envs")
    if chosen["algo"] in OFF_POLICY:
        short, dqn_on_gym = chosen["batching"] == "short_segments", chosen["algo"] == "dqn" and chosen["env"] == "gym"
        if short and given["batching"]["length"] is not None:
            longer = max(given["batching"]["length"], algo["n_step"])
            yield Rule("batching.length", longer, "rows hold the rewards of algo.n_step")
        length = given["batching"].get("length")
        if length == 1 or short:
            yield Rule(
                "algo.batch_size", TRANSITIONS, f"{TRANSITIONS} transitions in short rows come from many episodes"
            )
        if algo["update_per"] == "step":
            most = 0.5 if dqn_on_gym else 1.0
            ratio = min(most, max(0.05, round(UPDATES / steps, 3)))
            yield Rule("algo.update_ratio", ratio, f"{UPDATES:,} updates in all, at most {most:g} per step")
        if dqn_on_gym:
            yield Rule("algo.n_step", min(N_STEP, length or N_STEP), "rewards reach earlier values in fewer updates")
            yield Rule("algo.td_loss", "squared", "the ends of episodes may change values by a hundred rewards")
            yield Rule("algo.tau", TAU, "half as many updates, a target that follows twice as fast")
            if "normalise_obs" in given["encoder"]:
                yield Rule("encoder.normalise_obs", True, "observations may have any scale")
        if num_envs:
            few = min(num_envs, max(1, steps // STEPS_PER_ENV))
            yield Rule("env.num_envs", few, "in a short run, the first episodes must end early")
    paper = {"version": "original", "ablation": "none", "max_period": 1024}.items() <= given["memory"].items()
    if chosen["memory"] == "ffm" and chosen["algo"] == "ppo" and chosen["env"] == "repeat_previous" and paper:
        yield Rule("memory.init", "geometric", "none of the published periods tells some slots ago from others")
    if chosen["algo"] == "ppo" and num_envs:
        devices, slots = given["trainer"]["devices"], algo["rollout_slots"]
        few = steps // (FEWEST_UPDATES * slots * devices) * devices
        few = min(num_envs, max(few, -(-FEWEST_ENVS // devices) * devices))
        yield Rule("env.num_envs", few, f"{FEWEST_UPDATES} updates need rollouts of a hundredth of the run")
        if chosen["memory"] in STATELESS:  # others would not learn to remember for longer than a rollout
            short = max(FEWEST_SLOTS, steps // (FEWEST_UPDATES * given["env"]["num_envs"]))
            yield Rule("algo.rollout_slots", min(slots, short), f"{FEWEST_UPDATES} updates need short rollouts")
        if given["batching"].get("length") == 1:
            parts = max(1, given["env"]["num_envs"] // devices * algo["rollout_slots"] // MINIBATCH)
            yield Rule(
                "algo.num_minibatches", min(algo["num_minibatches"], parts), f"at least {MINIBATCH} transitions each"
            )
