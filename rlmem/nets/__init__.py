"""Networks around the memory: input encoders, hidden layers, policy heads and action distributions."""
