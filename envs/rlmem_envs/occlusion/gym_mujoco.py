"""The robots of `gymnasium[mujoco]`: what their observations are made of, and N of them stepped in threads."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from ctypes.util import find_library
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Box
from numpy.typing import NDArray

HEIGHT, WIDTH = 240, 320
"""Of a picture, in pixels."""
PIECES = 4
"""Into how many pieces the worlds are cut for each thread: one whose core is slow takes fewer."""
FREE = (("x", "y", "z", "qw", "qx", "qy", "qz"), ("x", "y", "z", "about x", "about y", "about z"))
"""Positions and velocities of a joint that leaves a body free."""


def require_mujoco(task: str) -> None:
    """Raises ImportError, for `task`, if MuJoCo or what Gymnasium draws it with is not installed."""
    if missing := [name for name in ("mujoco", "imageio") if find_spec(name) is None]:
        needs = f"{task} needs {' and '.join(missing)}, which is not installed"
        raise ImportError(f"{needs}: pip install '.[mujoco]' in a clone of rlmem", name=missing[0])


def package_env(env_id: str) -> Any:
    """A robot of Gymnasium, such as `Hopper-v5`, without a time limit."""
    import mujoco

    make = load_env_creator(str(gym.spec(env_id).entry_point))
    warn = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)  # of what is old in the package's models; else to MUJOCO_LOG.TXT
    try:
        return make(render_mode="rgb_array", width=WIDTH, height=HEIGHT)
    finally:
        mujoco.set_mju_user_warning(warn)


class Layout(NamedTuple):
    """What a robot is made of, as its package says.

    position: names of the numbers of qpos that its observation begins with
    velocity: names of the numbers of qvel that come next
    others: the parts after these, and how many numbers each has
    actions: the space of its actions
    """

    position: tuple[str, ...]
    velocity: tuple[str, ...]
    others: Mapping[str, int]
    actions: Box

    @property
    def size(self) -> int:
        """How many numbers an observation has."""
        return len(self.position) + len(self.velocity) + sum(self.others.values())


@cache
def layout(env_id: str) -> Layout:
    """The layout of a robot of Gymnasium, read off its model and its `observation_structure`."""
    env = package_env(env_id)
    parts = dict(env.observation_structure)
    qpos, qvel = _names(env.model)
    skipped = parts.pop("skipped_qpos")
    if (parts.pop("qpos"), parts.pop("qvel")) != (len(qpos) - skipped, len(qvel)):
        raise RuntimeError(f"{env_id}: its observation is not made of qpos and qvel")
    others = {name: int(number) for name, number in parts.items() if number}
    env.close()
    return Layout(tuple(qpos[skipped:]), tuple(qvel), others, env.action_space)


def _names(model: Any) -> tuple[list[str], list[str]]:
    """A name for every number of qpos, and of qvel: that of the joint, and of the direction where it has several."""
    import mujoco

    free = int(mujoco.mjtJoint.mjJNT_FREE)
    groups: tuple[list[str], list[str]] = ([], [])
    for joint in range(model.njnt):
        name, is_free = model.joint(joint).name, model.jnt_type[joint] == free
        for names, directions in zip(groups, FREE, strict=True):
            names += [f"{name} {direction}" for direction in directions] if is_free else [name]
    return groups


class Worlds:
    """N worlds of one robot, stepped by MuJoCo, which lets go of Python's lock meanwhile, in threads.

    env: the robot of Gymnasium whose model they share; it steps nothing itself, but draws
    num_envs: N
    names: the arrays of MuJoCo's data that `data` has a copy of, [N, ...] each, after every step and reset
    threads: how many share the worlds, this one among them
    """

    def __init__(self, env: Any, num_envs: int, names: Sequence[str], threads: int):
        import mujoco

        self.mujoco: Any = mujoco
        self.env, self.model, self.frame_skip = env, env.model, env.frame_skip
        self.worlds = [mujoco.MjData(env.model) for _ in range(num_envs)]
        self.controls = [world.ctrl for world in self.worlds]
        self.data = {name: np.array([getattr(world, name) for world in self.worlds]) for name in names}
        self.copies = [
            [(self.data[name][i, ...], getattr(world, name)) for name in names] for i, world in enumerate(self.worlds)
        ]
        self.kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # all that a step depends on, bit for bit
        self.state_size = int(mujoco.mj_stateSize(env.model, self.kind))
        self.threads, self.pool = threads, ThreadPoolExecutor(max(threads - 1, 1))
        self.draws = True

    def begin(self, who: Sequence[int], qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        """Reset worlds `who` to positions and velocities [n, ...], as Gymnasium does."""
        for row, i in enumerate(who):
            world = self.worlds[i]
            self.mujoco.mj_resetData(self.model, world)
            world.qpos[:], world.qvel[:] = qpos[row], qvel[row]
            self.mujoco.mj_forward(self.model, world)
            self._copy(i)

    def save(self, who: Sequence[int], states: NDArray[np.float64]) -> None:
        """Write the exact states of worlds `who` to their rows of `states` [N, state_size]."""
        for i in who:
            self.mujoco.mj_getState(self.model, self.worlds[i], states[i], self.kind)

    def load(self, who: Sequence[int], states: NDArray[np.float64]) -> None:
        """Bring worlds `who` to their rows of `states` [N, state_size], but for what only a step computes."""
        for i in who:
            self.mujoco.mj_setState(self.model, self.worlds[i], states[i], self.kind)

    def step(self, who: Sequence[int], actions: NDArray[np.float32]) -> None:
        """A step of Gymnasium in worlds `who` under actions [n, A]."""
        edges = np.linspace(0, len(who), min(PIECES * self.threads, len(who)) + 1).astype(int).tolist()
        pieces = iter([(who[a:b], actions[a:b]) for a, b in pairwise(edges)])  # a thread that is free takes the next
        others = [self.pool.submit(self._step, pieces) for _ in range(self.threads - 1)]
        self._step(pieces)
        for other in others:
            other.result()

    def _step(self, pieces: Iterator[tuple[Sequence[int], NDArray[np.float32]]]) -> None:
        step, finish = self.mujoco.mj_step, self.mujoco.mj_rnePostConstraint
        for who, actions in pieces:
            for i, action in zip(who, actions, strict=True):
                world = self.worlds[i]
                self.controls[i][:] = action
                step(self.model, world, self.frame_skip)
                finish(self.model, world)  # contact forces
                self._copy(i)

    def _copy(self, i: int) -> None:
        for copy, own in self.copies[i]:
            copy[...] = own

    def picture(self, i: int) -> NDArray[np.uint8] | None:
        """World i [HEIGHT, WIDTH, 3]; None, once after a warning, where nothing can draw."""
        if self.draws:
            self.mujoco.mj_copyData(self.env.data, self.model, self.worlds[i])
            try:
                with offscreen():
                    return np.asarray(self.env.render())
            except Exception as error:  # the libraries of OpenGL raise whatever they like
                self.draws = False
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                warnings.warn(f"MuJoCo draws no pictures here, so numbers are shown ({reason})", stacklevel=2)
        return None

    def close(self) -> None:
        """End the threads, and let go of what draws."""
        self.pool.shutdown()
        self.env.close()


@contextmanager
def offscreen() -> Iterator[None]:
    """Have Gymnasium draw without a window, unless MUJOCO_GL says how. Raises RuntimeError without a library for it."""
    with suppress(
        ImportError
    ):  # loaded after the LLVM of Mesa's libEGL, Triton's ends the process (torch._dynamo loads it)
        import_module("triton._C.libtriton")
    if "MUJOCO_GL" in os.environ or sys.platform != "linux":
        yield
        return
    os.environ["MUJOCO_GL"] = opengl()
    try:
        yield
    finally:
        del os.environ["MUJOCO_GL"]


@cache
def opengl() -> str:
    """What draws without a window here, as MUJOCO_GL names it. Raises RuntimeError if nothing does."""
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if find_library(library):
            return name
    if os.environ.get("DISPLAY"):
        return "glfw"
    raise RuntimeError("neither libEGL nor libOSMesa is installed: apt-get install libegl1, or libosmesa6")
