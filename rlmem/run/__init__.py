"""From a checked configuration to a trained agent: building, checking, training, resuming, evaluating."""
