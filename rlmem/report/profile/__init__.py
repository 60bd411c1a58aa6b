"""`rlmem profile`: what a memory can hold, for how long and how often rewritten, on the same axes for every memory."""
