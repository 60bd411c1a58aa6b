"""What a run says about its learning, each thing at most once."""

from collections.abc import Callable, Mapping
from typing import Any

FEWEST_EPISODES = 8
"""A run whose batches hold fewer says so: the transitions of one episode are much alike."""
SATURATED, STILL = 0.95, 0.1
"""A policy is saturated if this share of its actions lies at the bounds, and they spread less than this over slots."""
PATIENCE = 5
"""Iterations in a row after which a saturated policy is reported."""


class Notices:
    """Says each thing once, also over interruptions.

    say: shows a line
    """

    def __init__(self, say: Callable[[str], None]):
        self.say, self.said, self.saturated = say, set[str](), 0

    def once(self, kind: str, text: str) -> None:
        """Say `text`, unless something of this kind has been said."""
        if kind not in self.said:
            self.said.add(kind)
            self.say(text)

    def few_episodes(self, episodes: float, example: str) -> None:
        """Report batches of few episodes.

        episodes: in a batch, the mean
        example: what to do
        """
        if episodes < FEWEST_EPISODES:
            what = f"a batch holds about {episodes:.1f} episodes"
            self.once("episodes", f"{what}; from fewer than {FEWEST_EPISODES}, learning is unsteady; {example}")

    def saturation(self, metrics: Mapping[str, float], example: str) -> None:
        """Report a policy whose actions stay at a bound whatever it sees.

        metrics: of an iteration, by their last names
        example: what to do
        """
        share, spread = metrics.get("actions_at_bounds"), metrics.get("action_spread")
        if share is None or spread is None:
            return
        self.saturated = self.saturated + 1 if share >= SATURATED and spread < STILL else 0
        if self.saturated >= PATIENCE:
            where = f"the policy stands still: {share:.0%} of its actions lie at a bound, whatever it sees"
            self.once("saturation", f"{where}, where learning can hardly move them; {example}")

    def state_dict(self) -> dict[str, Any]:
        return {"said": sorted(self.said), "saturated": self.saturated}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.said, self.saturated = set(state["said"]), state["saturated"]
