"""What every room needs: batches and states, spaces, random streams, errors, and the operating system."""
