"""Scans over time with resets, for recurrent memories, returns and advantages, and the matrix products around them.

`linear_scan` is h_t = a_t * h_{t-1} + b_t, elementwise. `outer_scan` and `delta_scan` have matrices of outer products
as states, and `hadamard_scan` one that is multiplied elementwise in every slot. `monoid_scan` takes any associative
operation. Each has one definition (`loop`) and faster forms, whose values and gradients are tested against it.
"""

from rlmem.scan.hadamard import hadamard_scan as hadamard_scan
from rlmem.scan.linear import linear_scan as linear_scan
from rlmem.scan.monoid import monoid_scan as monoid_scan
from rlmem.scan.monoid import resettable as resettable
from rlmem.scan.native import Engine as Engine
from rlmem.scan.native import Linear as Linear
from rlmem.scan.native import chosen_engine as chosen_engine
from rlmem.scan.outer import delta_scan as delta_scan
from rlmem.scan.outer import normalised_scan as normalised_scan
from rlmem.scan.outer import outer_scan as outer_scan
from rlmem.scan.selective import selective_scan as selective_scan
