"""Population based training: agents that learn side by side, of which the worse take over the weights of the better."""
