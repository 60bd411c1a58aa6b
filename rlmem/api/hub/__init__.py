"""Trained agents on the Hugging Face Hub: pushing the agent of a run, and pulling one as a run directory."""
