"""Games seen through a small window of pixels."""
