"""The levels of Visual Match and of Key-to-Door, which differ in the lengths of the phases and in what winning pays."""

from typing import Any


def level(explore: int, distractor: int, reward: int, final_reward: float, **own: Any) -> dict[str, Any]:
    """The parameters of a level with so many frames in each phase.

    own: those that the game alone has
    """
    return {
        "explore_frames": explore,
        "distractor_frames": distractor,
        "reward_frames": reward,
        "num_apples": 10,
        "apple_reward": 1.0,
        "fix_apple_reward_in_episode": True,
        "respawn_every": 20,
        "final_reward": final_reward,
        **own,
    }
