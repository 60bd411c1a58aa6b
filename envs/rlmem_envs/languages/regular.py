"""Regular languages as decision problems: read a string, and say which class it is in."""

from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import NOTHING, UNKNOWN, BatchedEnv, Facts, Horizons, Observe, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.languages.dfa import DFA
from rlmem_envs.languages.words import WordStream


class RegularLanguage(BatchedEnv):
    """A string is shown letter by letter; at the end marker E, name the class that an automaton puts it in.

    | | |
    |---|---|
    | observation | Discrete(K + 1): the present letter, of K, or K for E |
    | action | Discrete(C + 1): a class, of C, or C for no answer; does not matter before E |
    | reward | at E: 1 for the right class, 0 for another, -1 for no answer |
    | end | terminates with the answer, after L steps; E is also the last observation |
    | recall | 1 to n - 1 slots back; in SYM(5) to n - 4, as its first three letters always lead to the same place |
    | hidden | `symbols` [n]: the letters, ended by any other number; `length`: L, if they do not end |
    | oracle | 1, naming the class of the automaton's state |
    | full state | Box [S + 1]: the automaton's state before the present letter, one-hot; steps taken as a share of n; \
with answer=every also L / n, on which rewards depend |

    L counts E, so there are L - 1 letters, independent and uniformly distributed. PARITY: odd or even many ones. EVEN
    PAIRS: is the last letter the first? SYM(5): the place of one of five things that every letter permutes.

    With answer=every there are L letters, the class of the string so far is asked for at each of them, and an answer
    earns the L-th part of what it earns at E; an episode is won by L right ones.

    `stream` has the strings and their classes for supervised learning (`algo=classify`).

    language: name of a table in `rlmem_envs.languages.tables`, or a table of your own, {start: even, transitions:
        {even: {a: even, b: odd}, odd: {a: odd, b: even}}, labels: {even: 0, odd: 1}}
    n: the greatest L
    length: uniform, L is any of min_length .. n, to train with | fixed, L = n, to evaluate with
    min_length: the least L, if uniform
    answer: end, once, when E is shown | every, at every letter
    observe: see `BatchedEnv`; `stream` has symbols, whatever this says
    """

    tests = "state tracking: every letter may change the answer"
    source = "Lu et al. 2024 (arXiv:2405.17358)"
    returns = (-1.0, 1.0)
    levels = {
        f"{language}_{n}": {"language": language, "n": n}
        for language in ("even_pairs", "parity", "sym5")
        for n in (10, 25, 50)
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        language: str | dict[str, Any] = "parity",
        n: Annotated[int, Ge(2), Le(1_000_000)] = 25,
        length: Literal["uniform", "fixed"] = "uniform",
        min_length: Annotated[int, Ge(1)] = 2,
        answer: Literal["end", "every"] = "end",
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        if not 1 <= min_length <= n:
            raise ValueError(f"min_length={min_length}: expected at least 1 and at most n={n}")
        self._dfa = dfa = DFA.read(language)
        self._n, self._shortest = n, n if length == "fixed" else min_length
        self._end = len(dfa.letters)
        params = {"language": language, "n": n, "length": length, "min_length": min_length}
        if answer != "end":
            params["answer"] = answer
        spaces = Discrete(self._end + 1), Discrete(dfa.classes + 1)
        full = Box(0, 1, (len(dfa.states) + 1 + (answer == "every"),), np.float32)
        super().__init__(num_envs, *spaces, params, observe=observe, full_space=full, **kwargs)
        self._ranges = {"length": (1, n)}
        self._rules, self._every = {**params, **kwargs}, answer == "every"
        # [S, K + 1], flat: E leaves the automaton where it is
        self._next = np.column_stack([dfa.next, np.arange(len(dfa.states))]).ravel()
        # [S, C + 1], flat: what an action earns at the end
        self._pay = np.pad(np.eye(dfa.classes)[dfa.label], ((0, 0), (0, 1)), constant_values=-1).ravel()
        self.symbols = np.full((num_envs, n + 1), self._end)  # the letters, then E for ever
        self.length = np.full(num_envs, n)
        self.reached = np.full(num_envs, dfa.start)  # the automaton's state before the present symbol
        if self._every:
            self.missed = np.zeros(num_envs, bool)  # an answer was wrong
        self._rows = self._all * (n + 1)  # where each begins in `symbols`, flat
        self._places = np.arange(1, n + 1)
        # how many letters there are, n times, and how many lengths
        self._sizes = np.array([self._end] * n + [n + 1 - self._shortest], np.uint64)

    def _draw(self, who: Who) -> Facts:
        drawn = self.draws.integers(who, self._sizes, self._n + 1)
        return {"symbols": drawn[:, :-1], "length": self._shortest + drawn[:, -1]}

    def _begin(self, who: Who, facts: Facts) -> None:
        symbols, length = facts["symbols"], facts["length"]
        ends = symbols.view(np.uint64) >= self._end  # a negative number is a huge one
        if ends.any():
            length = np.where(ends.any(1), (ends.argmax(1) + (not self._every)).clip(1), length)
        letters = length - (not self._every)
        self.symbols[who, :-1] = np.where((self._places <= letters[:, None]) & ~ends, symbols, self._end)
        self.length[who] = length
        self.reached[who] = self._dfa.start
        if self._every:
            self.missed[who] = False

    def _after(self) -> NDArray[np.int64]:
        """The automaton's state after the present symbol [N]."""
        return self._next.take(self.reached * (self._end + 1) + self._observe())

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        self.reached = self._after()
        ended = self.t == self.length - 1
        pay = self._pay.take(self.reached * (self._dfa.classes + 1) + actions)
        if self._every:
            rewards = pay / self.length
            self.missed |= pay <= 0
            self._won = ~self.missed
        else:
            rewards = np.where(ended, pay, 0.0)
            self._won = rewards > 0
        return rewards, ended, np.zeros(self.num_envs, bool)

    def _observe(self) -> NDArray[np.int64]:
        return self.symbols.take(self._rows + self.t)

    def _full_state(self) -> NDArray[np.float32]:
        pay = [self.length / self._n] if self._every else []
        return features(one_hot(self.reached, len(self._dfa.states)), self.t / self._n, *pay)

    def _success(self) -> NDArray[np.bool_]:
        return self._won

    @property
    def label_names(self) -> tuple[str, ...]:
        """The true states: (automaton's state, letter that it reads), and T, when E is shown and all are read."""
        pairs = [f"({state}, {letter})" for state in self._dfa.states for letter in self._dfa.letters]
        return (*pairs, "T")

    def labels(self) -> NDArray[np.int64]:
        """The true state of each environment [N], a place in `label_names`."""
        symbol, letters = self._observe(), self._end
        return np.where(symbol == letters, len(self._dfa.states) * letters, self.reached * letters + symbol)

    def oracle(self) -> NDArray[Any]:
        return self._dfa.label[self._after()]

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """It names the class that is commonest where the present symbol is shown."""
        return self._class_shares.argmax(1)[self._observe()]

    @cached_property
    def _class_shares(self) -> NDArray[np.float64]:
        """The share of what there is to earn that is for naming a class when a symbol is shown [K + 1, C]."""
        lengths = np.arange(self._shortest, self._n + 1)
        shares = np.zeros((self._end + 1, self._dfa.classes))
        if not self._every:
            shares[-1] = np.mean([self._dfa.class_shares(length - 1) for length in lengths.tolist()], axis=0)
            return shares
        for place in self._places.tolist():
            weight = (1 / lengths[lengths >= place]).sum() / len(lengths)
            shares[:-1] += weight * self._dfa.class_shares_by_letter(place)
        return shares

    def asked(self) -> NDArray[np.bool_]:
        """Whether an answer is asked for at the present symbol [N]."""
        return np.ones(self.num_envs, bool) if self._every else self.t == self.length - 1

    def stream(self, batch_size: int, window: int, seed: int) -> WordStream:
        """`batch_size` rows of strings that nobody has read yet, with their classes."""
        return WordStream(RegularLanguage(batch_size, **self._rules), window, seed)

    def episode_steps(self) -> tuple[int, int]:
        return self._shortest, self._n

    def scores(self) -> Scores:
        """At random, a right answer is as likely as none; the rest follows from the automaton."""
        if self.max_episode_steps is not None:
            return UNKNOWN
        return Scores(random=0.0, memoryless=float(self._class_shares.max(1).sum()), oracle=1.0)

    def _horizons(self) -> Horizons | None:
        """What follows from the automaton; for strings of more than a thousand letters that would take too long."""
        if self._n > 1000:
            return None
        marker = not self._every  # comes after the last letter
        after = self._dfa.suffixes_that_matter(self._shortest - marker, self._n - marker, at_end=marker)
        back = [number + marker for number in after if number + marker]
        return Horizons(back[0], back[-1]) if back else NOTHING

    def _first_use(self) -> int:
        return 0 if self._every else self._shortest - 1

    def text(self, i: int) -> str:
        shown, last = (*self._dfa.letters, "E")[self._observe()[i]], self._dfa.classes
        return f"{shown}   class 0 .. {last - 1}, or {last} for no answer" if self.asked()[i] else shown
