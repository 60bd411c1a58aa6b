"""Classic control and robots with parts of their state hidden."""
