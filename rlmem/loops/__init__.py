"""The training loops: what happens between the first environment step and the last."""
