"""Acting in environments: collecting rollouts, evaluating, playing, and actors in other processes."""
