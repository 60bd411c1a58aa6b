"""Environments that break Gymnasium's interface, each in a way of its own, and what rlmem is to say of it.

A fault is a row of FAULTS (single environments) or of VECTOR_FAULTS (vectors). Environment `WHERE` of four shows it
from its step `WHEN` on, which is in its second episode.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Event
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.occlusion.workers import Crew
from rlmem_envs.vector import vectorise

WHERE, WHEN, LENGTH = 1, 7, 5
NAN, INF = float("nan"), float("inf")
BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)
DISCRETE = spaces.Discrete(3)


@dataclass(frozen=True)
class Fault:
    """What an environment does wrong, and what is said of it.

    do: makes something wrong of what `step` or `reset` returns, or raises
    said: a part of rlmem's line
    at: "step" or "reset"
    raises: whether the environment's author sees a traceback
    """

    do: Callable[[Any], Any]
    said: str
    at: str = "step"
    raises: bool = False
    discrete: bool = False


def part(index: int, value: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Puts `value` into a place of the tuple that is returned."""
    return lambda result: (*result[:index], value, *result[index + 1 :])


def throw(error: BaseException) -> Callable[[Any], Any]:
    def do(result: Any) -> Any:
        raise error

    return do


observation, reward, terminated, truncated, info = (partial(part, index) for index in range(5))
pair = lambda *values: np.array(values, np.float32)  # noqa: E731

FAULTS: dict[str, Fault] = {
    # a reward that is no finite number
    "reward nan": Fault(reward(NAN), "reward nan; expected a finite number"),
    "reward beyond float32": Fault(reward(1e39), "reward 1e+39; expected a finite number of float32"),
    "reward None": Fault(reward(None), "reward None (NoneType); expected one number"),
    "reward array": Fault(reward(np.array([1.0])), "reward array([1.]) (ndarray); expected one number"),
    # an observation that is not of the space
    "observation nan": Fault(observation(pair(0, NAN)), "observation with nan; expected finite numbers"),
    "observation beyond float32": Fault(
        observation(np.array([0, 1e39])), "observation 1e+39; expected a finite number of float32"
    ),
    "observation too short": Fault(observation(pair(1)), "observation of shape (1,); expected (2,)"),
    "observation a number": Fault(observation(1.0), "observation of shape (); expected (2,)"),
    "observation None": Fault(observation(None), "observation None (NoneType); expected numbers of Box"),
    "observation dictionary": Fault(observation({"x": 1}), "observation {'x': 1} (dict); expected numbers of Box"),
    "discrete beyond": Fault(observation(3), "observation 3 (int); expected one of Discrete(3)", discrete=True),
    "discrete fraction": Fault(observation(1.5), "observation of type float64; expected int64", discrete=True),
    "discrete array": Fault(observation(np.array([1])), "observation of shape (1,); expected ()", discrete=True),
    # flags and infos
    "terminated None": Fault(terminated(None), "terminated None (NoneType); expected True or False"),
    "terminated two": Fault(terminated(2), "terminated 2 (int); expected True or False"),
    "truncated None": Fault(truncated(None), "truncated None (NoneType); expected True or False"),
    "info None": Fault(info(None), "info None (NoneType); expected a dictionary"),
    # what step returns as a whole
    "step returns four": Fault(lambda result: result[:4], "step() returned 4 values; expected (observation, reward,"),
    "step returns None": Fault(lambda result: None, "step() returned None (NoneType); expected (observation,"),
    # exceptions of the author's own
    "step raises": Fault(throw(ValueError("no such door")), "raised ValueError: no such door", raises=True),
    "step raises nothing said": Fault(throw(ZeroDivisionError()), "raised ZeroDivisionError", raises=True),
    "step stops iterating": Fault(throw(StopIteration(3)), "raised StopIteration: 3", raises=True),
    "step ends the program": Fault(throw(SystemExit(0)), "raised SystemExit: 0", raises=True),
    # beginnings
    "reset raises": Fault(throw(RuntimeError("no map")), "raised RuntimeError: no map", "reset", raises=True),
    "reset without info": Fault(lambda result: result[0], "reset() returned array", "reset"),
    "reset returns None": Fault(lambda result: None, "reset() returned None (NoneType); expected", "reset"),
    "reset nan": Fault(observation(pair(NAN, NAN)), "observation with nan; expected finite numbers", "reset"),
}


class Unpicklable(Exception):
    """An exception that holds what pickle cannot copy."""

    def __init__(self) -> None:
        super().__init__("no such door")
        self.undo = lambda: None


class Twofold(Exception):
    """An exception that pickle cannot build again: it has another number of arguments than its constructor."""

    def __init__(self, door: str, key: str):
        super().__init__(f"{door} {key}")


def end(number: int) -> Callable[[Any], None]:
    return lambda result: os.kill(os.getpid(), number)


WORKER_FAULTS: dict[str, Fault] = {
    "is killed": Fault(end(signal.SIGKILL), "its worker process was killed by SIGKILL"),
    "ends the program": Fault(throw(SystemExit(3)), "its worker process ended with exit code 3"),
    "is killed as it begins": Fault(end(signal.SIGKILL), "its worker process was killed by SIGKILL", "reset"),
    "raises what cannot be pickled": Fault(throw(Unpicklable()), "cannot be passed between processes; expected one"),
    "raises what cannot be built": Fault(throw(Twofold("a", "b")), "cannot be passed between processes (TypeError: "),
}
"""What may happen to an environment in a worker process of AsyncVectorEnv."""


def interrupt(result: Any) -> Any:
    os.killpg(0, signal.SIGINT)
    return result


UNMADE = {"cannot be made": Fault(throw(ValueError("no such house")), "if worker processes make", "make")}
"""Faults of a worker process before its environment exists."""

INTERRUPTED = {"is interrupted": Fault(interrupt, "")}
"""Ctrl-C in a terminal, which all processes get."""

HEALTHY: dict[str, Fault] = {
    "healthy": Fault(lambda result: result, ""),
    "ends at once": Fault(terminated(True), ""),
    "ends and is cut at once": Fault(lambda result: (*result[:2], True, True, result[4]), ""),
    "flags are numbers": Fault(lambda result: (*result[:2], int(result[2]), np.int64(0), result[4]), ""),
    "numbers of other kinds": Fault(lambda result: (list(result[0]), np.array(1), *result[2:]), ""),
    "no end": Fault(lambda result: (*result[:2], False, False, {}), ""),
}
"""What looks odd, and is allowed."""


class Faulty(gym.Env):
    """Episodes of LENGTH steps; the observation is [step, 1]. `cured`: shows no fault after all."""

    cured = False
    made = count()

    def __init__(self, fault: str, index: int | None = None):
        self.fault = (FAULTS | HEALTHY | WORKER_FAULTS | UNMADE | INTERRUPTED)[fault]
        self.index = next(Faulty.made) if index is None else index
        self.everywhere = fault in HEALTHY
        self.observation_space, self.action_space = DISCRETE if self.fault.discrete else BOX, spaces.Discrete(2)
        self.taken = self.episode = self.at = 0
        self._shown(None, "make", True)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        return self._shown((self._obs(), {}), "reset", self.episode > WHEN // LENGTH + 1)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.taken, self.at = self.taken + 1, self.at + 1
        return self._shown((self._obs(), float(action), self.at >= LENGTH, False, {}), "step", self.taken >= WHEN)

    def _shown(self, result: Any, at: str, late: bool) -> Any:
        now = at == self.fault.at and (self.everywhere or (late and self.index == WHERE and not Faulty.cured))
        return self.fault.do(result) if now else result

    def _obs(self) -> Any:
        return self.at % 3 if self.observation_space == DISCRETE else np.array([self.at, 1], np.float32)


def make(
    id: str, num_envs: int = 4, max_episode_steps: Any = None, kwargs: Any = None, workers: int = 0, **others: Any
) -> VectorEnv:
    """So many environments with the fault `id`, in this process or divided over worker processes."""
    if workers:
        return InWorkers(num_envs, id, workers)
    index = count()
    return vectorise(lambda: Faulty(id, next(index)), num_envs)


def in_processes(
    id: str, num_envs: int = 4, max_episode_steps: Any = None, kwargs: Any = None, **others: Any
) -> VectorEnv:
    """Environments with the fault `id`, each in a worker process of Gymnasium's."""
    return AsyncVectorEnv([partial(Faulty, id, index) for index in range(num_envs)])


class InWorkers(BatchedEnv):
    """Single environments in worker processes, as the robots are."""

    def __init__(self, num_envs: int, fault: str, workers: int):
        self._make = partial(Faulty, fault)
        self._workers, space = workers, self._make(0).observation_space
        super().__init__(num_envs, space, spaces.Discrete(2), {"fault": fault})
        self.full = np.zeros((num_envs, *space.shape), space.dtype)
        self._crew: Crew | None = None

    def _draw(self, who: Any) -> Any:
        return {"seed": self.draws.integers(who, 2**31)}

    def _begin(self, who: Any, facts: Any) -> None:
        if len(who):
            self._crew = self._crew or Crew(self._make, self.num_envs, self._workers)
            (self.full[who],) = self._crew.call("begin", who, facts["seed"])

    def _advance(self, actions: Any) -> Any:
        rewards, ended = np.zeros(self.num_envs), np.zeros((2, self.num_envs), bool)
        who = np.flatnonzero(~self.over)
        if len(who):
            assert self._crew is not None
            self.full[who], rewards[who], ended[0, who], ended[1, who] = self._crew.call("step", who, actions[who])
        return rewards, *ended

    def _observe(self) -> Any:
        return self.full.copy()

    def close_extras(self, **kwargs: Any) -> None:
        if self._crew is not None:
            self._crew.close()


@dataclass(frozen=True)
class VectorFault(Fault):
    """names: whether the line can name an environment"""

    names: bool = False


def row(index: int, value: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Puts `value` into row WHERE of an array that is returned."""

    def do(result: tuple[Any, ...]) -> tuple[Any, ...]:
        array = np.array(result[index])
        array[WHERE] = value
        return part(index, array)(result)

    return do


VECTOR_FAULTS: dict[str, VectorFault] = {
    "a nan in a row": VectorFault(row(0, NAN), "observation with nan; expected finite", names=True),
    "a reward is inf": VectorFault(row(1, INF), "reward inf; expected a finite number", names=True),
    "a row too few": VectorFault(lambda r: (r[0][:3], *r[1:]), "observations of shape (3, 2); expected (4, 2)"),
    "ragged": VectorFault(observation([[1], [2, 3]]), "(list); expected an array of shape (4, 2)"),
    "text": VectorFault(observation(np.full((4, 2), "x")), "observations of type <U1; expected float32"),
    "rewards too few": VectorFault(lambda r: (r[0], r[1][:3], *r[2:]), "rewards of shape (3,) and type float64"),
    "no reward": VectorFault(reward(None), "rewards of shape () and type object; expected 4 numbers"),
    "ends too few": VectorFault(terminated(np.zeros(3, bool)), "terminated of shape (3,) and type bool"),
    "no infos": VectorFault(info(None), "infos None (NoneType); expected a dictionary"),
    "success of one": VectorFault(info({"success": True}), "infos['success'] True (bool); expected 4 values"),
    "four values": VectorFault(lambda r: r[:4], "step() returned 4 values; expected (observations, rewards,"),
    "raises": VectorFault(throw(ValueError("no such door")), "raised ValueError: no such door", raises=True),
    "ends as it begins": VectorFault(
        row(2, True), "the episode ended in the step that began it", at="begin", names=True
    ),
    "reset nan": VectorFault(row(0, NAN), "observation with nan; expected finite numbers", at="reset", names=True),
    "reset without infos": VectorFault(lambda r: r[0], "(ndarray); expected (observations, infos)", at="reset"),
}


class FaultyVector(VectorEnv):
    """A vector of somebody's own, with NEXT_STEP autoreset."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, id: str, num_envs: int = 4, max_episode_steps: Any = None, kwargs: Any = None, **others: Any):
        self.num_envs, self.fault = num_envs, VECTOR_FAULTS.get(id)
        self.single_observation_space, self.single_action_space = BOX, spaces.Discrete(2)
        self.observation_space, self.action_space = (batch_space(s, num_envs) for s in (BOX, spaces.Discrete(2)))
        self.at, self.calls = np.zeros(num_envs, np.int64), 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.at[:] = 0
        return self._shown((self._obs(), {}), "reset", True)

    def step(self, actions: Any) -> Any:
        begins, self.calls = bool((self.at >= LENGTH).all()), self.calls + 1
        self.at = np.where(self.at >= LENGTH, 0, self.at + 1)
        ended = self.at >= LENGTH
        result = self._obs(), np.ones(self.num_envs), ended, np.zeros_like(ended), {}
        return self._shown(result, "begin" if begins else "step", self.calls >= WHEN - 1)

    def _shown(self, result: Any, at: str, late: bool) -> Any:
        return self.fault.do(result) if self.fault and at == self.fault.at and late else result

    def _obs(self) -> Any:
        return np.stack([self.at, self.at], 1).astype(np.float32)

    def state(self) -> Any:
        return {"at": self.at.copy(), "calls": self.calls}

    def restore(self, state: Any) -> None:
        self.at, self.calls = np.array(state["at"]), state["calls"]


class Forgetful(FaultyVector):
    """It tells its state, and cannot take it up again."""

    restore = None  # type: ignore[assignment]


class Fewer(FaultyVector):
    """It has one environment less than it is asked for."""

    def __init__(self, id: str, num_envs: int = 4, **others: Any):
        super().__init__(id, max(num_envs - 1, 1))


class Stubborn(FaultyVector):
    """It cannot be closed: that raises, or waits forever."""

    waits = True

    def close(self, **kwargs: Any) -> None:
        if self.waits:
            Event().wait()
        raise BrokenPipeError("gone")
