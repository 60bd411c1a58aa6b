"""Scans over time with resets, for recurrent memories, returns and advantages.

`linear_scan` is h_t = a_t * h_{t-1} + b_t, elementwise; `outer_scan` and `delta_scan` have matrices of outer products
as states, `hadamard_scan` calibrates such a matrix elementwise; `monoid_scan` takes any associative operation. Each has
one definition (`loop`) and faster forms, whose values and gradients are tested against it.
"""

from rlmem.scan.hadamard import hadamard_scan
from rlmem.scan.linear import Engine, chosen_engine, linear_scan
from rlmem.scan.monoid import monoid_scan, resettable
from rlmem.scan.outer import delta_scan, outer_scan

__all__ = [
    "Engine",
    "chosen_engine",
    "delta_scan",
    "hadamard_scan",
    "linear_scan",
    "monoid_scan",
    "outer_scan",
    "resettable",
]
