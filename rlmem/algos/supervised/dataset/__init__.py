"""Recorded transitions in files that follow D4RL's layout. Nothing is imported here: h5py is optional."""
