"""Environments of rlmem: Gymnasium vector environments, usable without the rest of the package.

Importing this package registers every task: `gymnasium.make("rlmem/RepeatPrevious-v0", level="easy")`,
`gymnasium.make_vec("rlmem/RepeatPrevious-v0", num_envs=1024)`.
"""

from rlmem_envs.registration import make, register

register()

__all__ = ["make"]
