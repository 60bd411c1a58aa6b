"""Learning to say something about a stream: the same memories, runs and records, without anything that acts."""
