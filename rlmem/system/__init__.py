"""What this process has from the operating system: signals, streams, cores, and errors from outside."""
