"""A walking robot of Gymnasium on MuJoCo with its positions or its velocities hidden, on all cores."""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Who
from rlmem_envs.occlusion.gym_mujoco import Layout, Worlds, layout, package_env, require_mujoco
from rlmem_envs.occlusion.robot import Robot

Floats = NDArray[Any]
Data = dict[str, NDArray[np.float64]]
"""Arrays of MuJoCo's data by name, [n, ...] each."""


class MujocoRobot(Robot):
    """A robot walks forward, along x, and sees all of its state, or only positions, or only velocities.

    | | |
    |---|---|
    | observation | Box [n], float32: those of the slots below that `observe` leaves |
    | action | Box [-1, 1] (Humanoid [-0.4, 0.4]): torque of every joint as a part of its gear; finite numbers outside |
    | | are clipped |
    | reward | mean speed forward during the step (m/s), with terms that each class says; a is the action |
    | end | truncated after `max_episode_steps`; what a fall is, which terminates, says each class |
    | hidden | `seed` [N], from which come small random positions and velocities, and the slots that are left out |
    | oracle | nobody knows it |

    | slots | full state |
    |---|---|
    | first | qpos, the positions of the joints, without how far the robot has come: *position* |
    | then | qvel, their velocities: *velocity* |
    | then | Ant and Humanoid: contact forces; Humanoid before that: inertias, velocities and forces of its parts |

    `position` keeps the slots marked so and `velocity` those marked so; neither keeps others. Which they are is read
    off the package, whose order it is.

    The rules and the numbers are those of `gymnasium[mujoco]`, bit for bit, but for rounding to float32. An episode is
    a function of its seed and the actions. What is saved is MuJoCo's state before the last step, and `restore` takes
    that step again, because places of bodies, inertias and contact forces, which rewards and observations of the Ant
    and the Humanoid read, are left by a step as they were within it and do not follow from the state behind it. That is
    exact for one version of MuJoCo and one kind of processor; where it ends elsewhere, `restore` warns.

    Threads start with the first step. Every environment takes about 1 MB.

    The parameters are described in `Robot`.
    """

    source = "gymnasium[mujoco] (Towers et al. 2024, arXiv:2407.17032), on MuJoCo (Todorov et al. 2012)"
    physics_name = "MuJoCo"
    env_id: ClassVar[str]
    """Name in Gymnasium."""
    reads: ClassVar[tuple[str, ...]] = ("qpos", "qvel")
    """The arrays of MuJoCo's data that the rules read."""
    noise: ClassVar[tuple[float, bool]] = (5e-3, False)
    """How far positions and velocities are random at first, and whether velocities are normal instead of uniform."""
    speeds_seen: ClassVar[float] = np.inf
    """The largest velocity that is seen; larger ones are clipped to it."""

    @classmethod
    def require(cls) -> None:
        require_mujoco(cls.__name__)

    @classmethod
    def layout(cls) -> Layout:
        """What its observation is made of."""
        return layout(cls.env_id)

    @classmethod
    def size(cls) -> int:
        return cls.layout().size

    @classmethod
    def parts(cls) -> dict[str, list[int]]:
        first = len(cls.layout().position)
        last = first + len(cls.layout().velocity)
        return {"full": [*range(cls.size())], "position": [*range(first)], "velocity": [*range(first, last)]}

    @classmethod
    def actions(cls) -> Box:
        return cls.layout().actions

    @classmethod
    def package(cls) -> Any:
        return package_env(cls.env_id)

    # ---- the rules

    def _place(self, data: Data) -> Floats:
        """How far forward robots [n] are, as their speed is measured."""
        return data["qpos"][:, 0]

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        """Whether robots [n] have not fallen."""
        raise NotImplementedError

    def _reward(self, speed: Floats, stands: Floats, actions: NDArray[np.float32], data: Data) -> Floats:
        """Rewards [n] of a step."""
        return (speed + stands) - 1e-3 * np.square(actions).sum(1)

    def _others(self, data: Data) -> tuple[Floats, ...]:
        """What is seen after positions and velocities, [n, ...] each."""
        return ()

    # ---- the physics

    def _prepare(self) -> None:
        package = self.package()
        self._worlds = Worlds(package, self.num_envs, self.reads, max(self._workers, 1))
        per_second = min(int(package.metadata["render_fps"]), 50)  # GIFs are not faster
        self.metadata = {**BatchedEnv.metadata, "render_fps": per_second}
        self.taken = np.zeros((self.num_envs, package.model.nu), np.float32)  # the last actions
        self.physics = np.zeros((self.num_envs, self._worlds.state_size))  # exact states, before the last actions

    def _begin_physics(self, who: Who) -> None:
        package, (scale, normal) = self._worlds.env, self.noise
        qpos, qvel = (np.tile(start, (len(who), 1)) for start in (package.init_qpos, package.init_qvel))
        for row, i in enumerate(who):
            rng, _ = seeding.np_random(int(self.seed[i]))
            qpos[row] += rng.uniform(-scale, scale, qpos.shape[1])
            qvel[row] += (
                scale * rng.standard_normal(qvel.shape[1]) if normal else rng.uniform(-scale, scale, qvel.shape[1])
            )
        self._worlds.begin(who.tolist(), qpos, qvel)
        self._show(who)

    def _remember(self, actions: NDArray[np.float32]) -> None:
        self.taken = actions

    def _act(self, who: Who, actions: NDArray[np.float32]) -> tuple[Floats, NDArray[np.bool_]]:
        before, worlds = self._place(self._read(who)), who.tolist()
        self._worlds.save(worlds, self.physics)
        self._worlds.step(worlds, actions)
        self._show(who)
        data = self._read(who)
        stands, speed = self._stands(data), (self._place(data) - before) / self._worlds.env.dt
        return self._reward(speed, stands, actions, data), ~stands & self.fall_ends

    def _read(self, who: Who) -> Data:
        return {name: values[who] for name, values in self._worlds.data.items()}

    def _show(self, who: Who) -> None:
        data = self._read(who)
        skipped = data["qpos"].shape[1] - len(self.layout().position)
        velocity = np.clip(data["qvel"], -self.speeds_seen, self.speeds_seen)
        parts = data["qpos"][:, skipped:], velocity, *self._others(data)
        self.full[who] = np.concatenate([part.reshape(len(who), -1) for part in parts], 1)

    def _bring_back(self, state: dict[str, Any]) -> Floats:
        saved = self.full.copy()
        first, later = np.flatnonzero(self.t == 0), np.flatnonzero(self.t > 0)
        if len(first):
            self._begin_physics(first)
        if len(later):
            self._worlds.load(later.tolist(), self.physics)
            self._worlds.step(later.tolist(), self.taken[later])
            self._show(later)
        current, self.full = self.full, saved
        return current

    # ---- looking at it

    def text(self, i: int) -> str:
        """Positions and velocities; what is not seen is in brackets."""
        layout = self.layout()
        cells = [f"{x:8.2f} " if slot in self._seen else f"({x:7.2f})" for slot, x in enumerate(self.full[i])]
        position = dict(zip(layout.position, cells, strict=False))
        velocity = dict(zip(layout.velocity, cells[len(position) :], strict=False))
        names = list(dict.fromkeys((*layout.position, *layout.velocity)))
        rows = [(name, position.get(name, " " * 9), velocity.get(name, "")) for name in names]
        head = (f"{type(self).__name__}, step {self.t[i]}", "position", "   speed")
        return "\n".join("".join([row[0].ljust(22), *row[1:]]).rstrip() for row in (head, *rows))

    def picture(self, i: int) -> NDArray[np.uint8]:
        """Environment i [240, 320, 3], drawn by MuJoCo; its text where nothing can draw."""
        drawn = self._worlds.picture(i)
        return BatchedEnv.picture(self, i) if drawn is None else drawn

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self._worlds.close()
