"""Recurrent cells over packed episodes: the packing, the loop over steps, and fast loops with hand-written gradients.

S slots of E episodes lie in the order of `torch.nn.utils.rnn.PackedSequence`: the first slots of all episodes, the
second slots of those that have one, and so on, longest episode first. `sizes` holds how many episodes each step has.
"""
