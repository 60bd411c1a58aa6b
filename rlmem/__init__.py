"""rlmem: memory in partially observable reinforcement learning."""

__version__ = "0.2.0.dev1"
