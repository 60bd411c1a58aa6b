"""Plans for decision processes whose tables are known: on exact beliefs, and as if the state were seen next."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.pomdp.model import Model, Table


class Plan:
    """Takes the action of the vector that promises most of a belief.

    vectors: [K, S], values of the states if a certain conditional plan is followed
    actions: [K], the first action of each
    """

    def __init__(self, vectors: Table, actions: NDArray[np.int64]):
        self.vectors, self.actions = vectors, actions

    def act(self, belief: Table) -> NDArray[np.int64]:
        """Actions [n] for beliefs [n, S]."""
        return self.actions[(belief @ self.vectors.T).argmax(-1)]

    def value(self, belief: Table) -> Table:
        """Values [n] of beliefs [n, S]."""
        return (belief @ self.vectors.T).max(-1)


def qmdp(model: Model, sweeps: int = 1000) -> Plan:
    """QMDP (Littman et al. 1995): the values of actions as if the state were seen from the next step on.

    It never acts to find something out.
    """
    pay, going = model.pay, model.T * ~model.ends
    q = np.zeros_like(pay)
    for _ in range(sweeps):
        new = pay + model.discount * going @ q.max(0)
        if np.abs(new - q).max() < 1e-9:
            break
        q = new
    return Plan(q, np.arange(len(q)))


def point_based(model: Model, points: int = 100, sweeps: int = 300, tolerance: float = 1e-3) -> Plan:
    """Point-based value iteration (Pineau et al. 2003) on beliefs that random play leads to.

    Values are lower bounds that rise with every sweep over the points, until none rises by more than `tolerance`.
    """
    beliefs = _reached(model, points)
    pay, A = model.pay, len(model.actions)
    going = model.T * ~model.ends
    discount = min(model.discount, 0.9999) * going
    always: Any = np.linalg.solve(np.eye(len(model.states)) - discount, pay[..., None])[..., 0]
    plan = Plan(always, np.arange(A))  # one action for ever
    for _ in range(sweeps):
        chosen = np.zeros((A, *beliefs.shape))
        for a, o in np.argwhere(model.Z.any(1)):
            ahead = (plan.vectors * model.Z[a, :, o]) @ going[a].T  # [K, S]
            chosen[a] += ahead[(beliefs @ ahead.T).argmax(-1)]
        q = pay[:, None] + model.discount * chosen
        first = np.einsum("abs,bs->ba", q, beliefs).argmax(-1)
        vectors = q[first, np.arange(len(beliefs))]
        distinct, where = np.unique(np.round(vectors, 9), axis=0, return_index=True)
        new = Plan(distinct, first[where])
        rise = np.abs(new.value(beliefs) - plan.value(beliefs)).max()
        plan = new
        if rise < tolerance:
            break
    return plan


def _reached(model: Model, points: int) -> Table:
    """[points, S], beliefs on the way of random play, the first one included."""
    rng, beliefs = np.random.default_rng(0), [model.start]
    n = 64
    states = rng.choice(len(model.states), n, p=model.start)
    belief = np.tile(model.start, (n, 1))
    for _ in range(points):
        actions = rng.integers(len(model.actions), size=n)
        states = _drawn(model.T[actions, states], rng.random(n))
        seen = _drawn(model.Z[actions, states], rng.random(n))
        belief = model.after(belief, actions, seen)
        over = model.ends[states] | (rng.random(n) < 0.02)
        states[over] = rng.choice(len(model.states), over.sum(), p=model.start)
        belief[over] = model.start
        beliefs += list(belief)
    distinct = np.unique(np.round(beliefs, 6), axis=0)
    chosen = distinct[rng.permutation(len(distinct))[: points - 1]]
    return np.concatenate([model.start[None], chosen / chosen.sum(-1, keepdims=True)])


def _drawn(chances: Table, uniform: Table) -> NDArray[np.int64]:
    """Indices [n] with chances [n, K], by uniform numbers [n]."""
    return np.minimum((chances.cumsum(-1) <= uniform[:, None]).sum(-1), chances.shape[-1] - 1)
