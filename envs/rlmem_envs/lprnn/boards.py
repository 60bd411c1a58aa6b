"""Games on boards of characters, seen as one binary plane for each character."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv


def planes(boards: NDArray[np.uint8], characters: str) -> NDArray[np.uint8]:
    """Where `boards` [..., rows, columns] show each of C characters: [..., C, rows, columns], 0 or 1."""
    codes = np.frombuffer(characters.encode(), np.uint8)
    return (boards[..., None, :, :] == codes[:, None, None]).view(np.uint8)


class BoardGame(BatchedEnv):
    """A game whose observation is its board: C planes of rows x columns, 1 where the board shows that character.

    Frame 0 is the first observation, frame f the one that step f brings, with its reward.

    flat: the planes as a vector [C * rows * columns], one after the other, else as an image [C, rows, columns]
    """

    source = "LP-RNN (Stepleton et al. 2018, arXiv:1805.04955), the games of pycolab"
    size: ClassVar[tuple[int, int]]
    """Rows and columns."""
    characters: ClassVar[str]
    """Characters of the planes, in their order."""
    looks_like: ClassVar[Mapping[str, str]] = {}
    """Characters that are painted as another one before the planes are made."""

    def __init__(self, num_envs: int, actions: int, params: Mapping[str, Any], flat: bool, **kwargs: Any):
        shape = (len(self.characters), *self.size)
        space = Box(0, 1, (int(np.prod(shape)),) if flat else shape, np.uint8)
        super().__init__(num_envs, space, Discrete(actions), params, **kwargs)

    def boards(self) -> NDArray[np.uint8]:
        """ASCII codes [N, rows, columns], before painting."""
        raise NotImplementedError

    def painted(self, boards: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Boards in the characters of the planes."""
        paint = np.arange(256, dtype=np.uint8)
        for character, other in self.looks_like.items():
            paint[ord(character)] = ord(other)
        return paint[boards]

    def text(self, i: int) -> str:
        return "\n".join(row.tobytes().decode() for row in self.painted(self.boards()[i]))


class PictureGame(BoardGame):
    """A game with so few different boards that all are drawn beforehand.

    pictures: [K, rows, columns], the boards
    """

    def __init__(self, *args: Any, pictures: NDArray[np.uint8], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._pictures = pictures
        shape = (len(pictures), *(self._space.shape or ()))
        self._planes = planes(self.painted(pictures), self.characters).reshape(shape)

    def _picture(self) -> NDArray[np.integer]:
        """Which board is shown [N]."""
        raise NotImplementedError

    def boards(self) -> NDArray[np.uint8]:
        return self._pictures.take(self._picture(), axis=0)

    def _observe(self) -> NDArray[np.uint8]:
        return self._planes.take(self._picture(), axis=0)
