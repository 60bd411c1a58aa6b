"""Scans over time with resets: every memory, return and advantage of rlmem runs through here.

`linear_scan` is h_t = a_t * h_{t-1} + b_t, elementwise; `monoid_scan` takes any associative operation. One
definition (`loop`), several engines, all held to it on values and gradients.
"""

from rlmem.scan.linear import Engine, chosen_engine, linear_scan

__all__ = ["Engine", "chosen_engine", "linear_scan"]
