"""rlmem: memory in partially observable reinforcement learning."""

__version__ = "0.1.0"
