"""POMDP: environments given as tables of probabilities and rewards."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Observe, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.pomdp.cassandra import read
from rlmem_envs.pomdp.models import MODELS
from rlmem_envs.pomdp.planning import Plan, point_based, qmdp


class POMDP(BatchedEnv):
    """A decision process with finitely many states: act on what was seen of a hidden state.

    | | |
    |---|---|
    | observation | Discrete(O + 1): what the last action showed; O at first, when nothing has been seen |
    | action | Discrete(A) |
    | reward | as the tables say, of the state, the action, the next state and what is seen |
    | end | terminates in the states `ends`; truncates after `steps` steps |
    | hidden | `hidden_state`: the first one; `luck` [2] of every step: where in 0 .. 1 the next state and what is \
seen are picked from the cumulated probabilities |
    | success | the episode ended in one of `ends`, if there are any |
    | oracle | acts on the exact belief, by point-based value iteration for the discount of the file |
    | full state | Box [S + 1]: the state, one-hot; the share of steps taken |
    | memoryless | acts on the belief after the last observation alone, and now and then at random |

    Whoever sees the full state need not find it out, and may earn more than the oracle.

    Files are in Cassandra's format (`.POMDP`), with names, wildcards, matrices, uniform, identity, reset, and rewards
    or costs. Those that are known by name are in `rlmem_envs.pomdp.models`.

    file: tiger, hallway, compass_world, or the path of a file
    steps: the most steps of an episode
    ends: states that end an episode, by name or number; of a path alone
    planner: how the oracle plans: point_based or qmdp
    observe: see `BatchedEnv`
    """

    tests = "keeping a belief about a hidden state from unreliable observations"
    source = (
        "tiger: Kaelbling et al. 1998; hallway: Littman et al. 1995; "
        "compass_world: Rafols et al. 2005; the format: Cassandra's pomdp-solve"
    )
    levels = {name: {"file": name, "steps": 100, "ends": (), "planner": "point_based"} for name in MODELS}
    known = {
        "tiger": Scores(random=-3033.333, memoryless=-100.0, oracle=106.4),  # random is exact, the oracle's measured
        "hallway": Scores(random=0.1546, memoryless=0.755, oracle=0.9999),
    }

    per_step = {"luck": (2,)}

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        file: str = "tiger",
        steps: Annotated[int, Gt(0)] = 100,
        ends: Sequence[Any] = (),
        planner: Literal["point_based", "qmdp"] = "point_based",
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        if file in MODELS:
            if ends:
                raise ValueError(f"ends={list(ends)}: {file} has its own; expected a file beside it, or []")
            self._model = MODELS[file]()
        else:
            try:
                self._model = read(file, [str(state) for state in ends])
            except OSError as error:
                known = ", ".join(MODELS)
                problem = f"file={file}: cannot be read ({error.strerror})"
                raise ValueError(f"{problem}; expected {known}, or the path of a .POMDP file") from error
        model, self._steps, self._planner = self._model, steps, planner
        A, self._seen = len(model.actions), len(model.observations)
        self._moves, self._shows = model.T.cumsum(-1), model.Z.cumsum(-1)
        params = {"file": file, "steps": steps, "ends": tuple(ends), "planner": planner}
        more: dict[str, Any] = {"observe": observe, "full_space": Box(0, 1, (len(model.states) + 1,), np.float32)}
        super().__init__(num_envs, Discrete(self._seen + 1), Discrete(A), params, **more, **kwargs)
        self.hidden_state = np.zeros(num_envs, np.int64)
        self.seen = np.full(num_envs, self._seen)
        self.belief = np.tile(model.start, (num_envs, 1))

    def _draw(self, who: Who) -> Facts:
        return {"hidden_state": _drawn(self._model.start.cumsum()[None], self.draws.uniform(who))}

    def _problem(self, facts: Facts) -> str | None:
        last = len(self._model.states) - 1
        return (
            None
            if ((facts["hidden_state"] >= 0) & (facts["hidden_state"] <= last)).all()
            else f"`hidden_state` is not within 0 .. {last}"
        )

    def _begin(self, who: Who, facts: Facts) -> None:
        self.seen = self.seen.copy()  # the one that was shown stays as it was
        self.hidden_state[who], self.seen[who], self.belief[who] = facts["hidden_state"], self._seen, self._model.start

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        before, luck = self.hidden_state, self._or_given("luck", self.draws.uniform(None, 2), self._all, self.t)
        self.hidden_state = _drawn(self._moves[actions, before], luck[:, 0])
        self.seen = _drawn(self._shows[actions, self.hidden_state], luck[:, 1])
        R = self._model.R
        after, seen = (self.hidden_state if R.shape[2] > 1 else 0), (self.seen if R.shape[3] > 1 else 0)
        self.belief = self._model.after(self.belief, actions, self.seen)
        ended = self._model.ends[self.hidden_state]
        return R[actions, before, after, seen].astype(np.float64), ended, ~ended & (self.t == self._steps - 1)

    def _observe(self) -> NDArray[Any]:
        return self.seen

    def _full_state(self) -> NDArray[np.float32]:
        return features(one_hot(self.hidden_state, len(self._model.states)), self.t / self._steps)

    def _success(self) -> NDArray[np.bool_] | None:
        return self._model.ends[self.hidden_state] if self._model.ends.any() else None

    @cached_property
    def _plan(self) -> Plan:
        return (point_based if self._planner == "point_based" else qmdp)(self._model)

    @cached_property
    def _reactive(self) -> NDArray[np.int64]:
        """[O + 1], the action for each observation alone, whatever action showed it."""
        chances = self._model.Z.mean(0).T * ~self._model.ends
        total = chances.sum(-1, keepdims=True)
        beliefs = np.where(total > 0, chances / np.where(total > 0, total, 1), self._model.start)
        return self._plan.act(np.concatenate([beliefs, self._model.start[None]]))

    def oracle(self) -> NDArray[Any]:
        return self._plan.act(self.belief)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        action = self._reactive[self.seen]
        if not self._model.ends.any():
            return action
        other = rng.integers(len(self._model.actions), size=self.num_envs)
        return np.where(rng.random(self.num_envs) < 0.1, other, action)

    def episode_steps(self) -> tuple[int, int]:
        return 1 if self._model.ends.any() else self._steps, self._steps

    def labels(self) -> NDArray[np.int64]:
        """The number of everybody's state [N]."""
        return self.hidden_state.copy()

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the states."""
        return self._model.states

    def text(self, i: int) -> str:
        model, most = self._model, np.argsort(-self.belief[i])[:3]
        shown = model.observations[self.seen[i]] if self.seen[i] < self._seen else "nothing yet"
        held = ", ".join(f"{model.states[s]} {self.belief[i, s]:.2f}" for s in most)
        state = model.states[self.hidden_state[i]]
        return f"seen: {shown}\nstate: {state}\nbelief: {held}\nstep {self.t[i]} of {self._steps}"


def _drawn(below: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices [n] of cumulative chances [n, K], by uniform numbers [n]."""
    return np.minimum((below <= uniform[:, None]).sum(-1), below.shape[-1] - 1)
