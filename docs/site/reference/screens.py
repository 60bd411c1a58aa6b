"""What an environment looks like after a few steps: a picture if it draws itself, else its text."""

import io
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.occlusion.robot import Robot

from reference.markdown import fence
from rlmem.acting.film import caption

STEPS = 3
"""Steps that are played before a picture is taken."""
SIDE = 240
"""Small pictures are enlarged by a whole number, to about this many pixels."""


class Screen(NamedTuple):
    """A picture as PNG, or the text of the first steps; one of both is empty."""

    picture: bytes
    text: str

    def markdown(self, file: str) -> str:
        return f"![screen after {STEPS} steps]({file})" if self.picture else fence(self.text) if self.text else ""


def screen(env: Any) -> Screen | None:
    """Play an episode for STEPS steps; None for an environment that shows nothing, or only slowly, as robots do."""
    if not isinstance(env, BatchedEnv) or isinstance(env, Robot):
        return None
    draws = type(env).picture is not BatchedEnv.picture
    if not draws and type(env).text is BatchedEnv.text:
        return None
    env.reset(seed=0)
    env.single_action_space.seed(0)
    shown = [f"{env.text(0)}\n{', '.join(caption(0))}"]
    total = 0.0
    for step in range(1, STEPS + 1):
        action = played(env)
        _, reward, *_ = env.step(action[None])
        total += float(reward[0])
        shown.append(f"{env.text(0)}\n{', '.join(caption(step, action, float(reward[0]), total))}")
    return Screen(png(env.picture(0)), "") if draws else Screen(b"", "\n\n".join(shown))


def played(env: BatchedEnv) -> Any:
    """The action of perfect play, or of chance where nobody knows it."""
    best = env.oracle()
    return np.asarray(env.single_action_space.sample() if best is None else best[0])


def png(picture: np.ndarray) -> bytes:
    times = max(1, round(SIDE / max(picture.shape[:2])))
    written = io.BytesIO()
    Image.fromarray(picture.repeat(times, axis=0).repeat(times, axis=1)).save(written, format="PNG")
    return written.getvalue()
