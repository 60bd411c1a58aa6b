"""Points that move in the plane, for meta reinforcement learning."""
