"""What agents see of a task: its observations or its twin's, and the parts beside them."""

from typing import Any

from gymnasium import Space
from gymnasium.spaces import Dict, Discrete, MultiBinary

from rlmem_envs.core.columns import Full
from rlmem_envs.core.task import Observe, Task


class View:
    """A look at all environments of a task: an array [N, ...], or a dictionary of such. `space` is that of one of them.

    Raises ValueError for what the task does not offer.

    task: whose spaces are known
    observe: full, the full state too, as one vector with what is shown
    privileged, action_mask: whether the parts of these names are seen beside the observation
    """

    def __init__(self, task: Task, observe: Observe, privileged: bool, action_mask: bool):
        name, full, actions = type(task).__name__, task._full_space, task.single_action_space
        self._twin: Full | None = None
        self.space, self._privileged, self._masks = task._space, privileged, action_mask
        if observe == "full":
            if full is None:
                raise ValueError(f"observe=full: {name} declares no full state; expected partial")
            self._twin = Full(task._space, full)
            self.space = self._twin.space
        parts: dict[str, Space] = {"observation": self.space}
        if privileged:
            if full is None:
                raise ValueError(f"privileged=True: {name} offers no full state; expected False")
            parts["privileged"] = full
        if action_mask:
            if type(task)._allowed is Task._allowed:
                raise ValueError(f"action_mask=True: {name} has no action masks; expected False")
            size = actions.n if isinstance(actions, Discrete) else sum(actions.nvec)  # type: ignore[attr-defined]
            parts["action_mask"] = MultiBinary(int(size))
        if len(parts) > 1:
            self.space = Dict(parts)

    def __call__(self, task: Task) -> Any:
        obs = task._observe() if self._twin is None else self._twin.join(task._observe(), task._full_state())
        if not (self._privileged or self._masks):
            return obs
        privileged = {"privileged": task._full_state()} if self._privileged else {}
        masks = {"action_mask": task._allowed()} if self._masks else {}
        return {"observation": obs, **privileged, **masks}
