"""What every native environment is made of."""
