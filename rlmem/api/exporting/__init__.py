"""One file of a trained agent's acting step, which needs nothing of rlmem to run."""
