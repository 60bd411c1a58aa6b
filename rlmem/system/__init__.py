"""What this process has from its system: signals, streams, cores, and names for what fails outside."""
