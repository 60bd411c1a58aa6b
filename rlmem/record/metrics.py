"""Meanings of the names in metrics.jsonl (`rlmem list metric`)."""

from pathlib import Path

from rlmem.config import plainyaml

METRICS: dict[str, tuple[str, str]] = {
    name: (by, text) for name, (by, text) in plainyaml.read(Path(__file__).with_name("metrics.yaml")).items()
}
"""Name -> who logs it, and its meaning. ALGO is the name of the algorithm, POLICY is greedy or sampled, RATE a
probability, and PART is a part of the network, such as critic."""
