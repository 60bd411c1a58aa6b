"""Meanings of the names in metrics.jsonl (`rlmem list metric`)."""

import re
from pathlib import Path

from rlmem.config import plainyaml

METRICS: dict[str, tuple[str, str]] = {
    name: (by, text) for name, (by, text) in plainyaml.read(Path(__file__).with_name("metrics.yaml")).items()
}
"""Name -> who logs it, and its meaning. ALGO is the name of the algorithm, POLICY is greedy or sampled, RATE a
probability, and PART is a part of the network, such as critic."""

PLACES = {"ALGO": r"\w+", "POLICY": "(?:greedy|sampled)", "RATE": r"[\d.e-]+", "PART": r"\w+"}
"""Words of names -> what may stand in their place."""


def entry(key: str) -> str | None:
    """The name in METRICS of a key of metrics.jsonl; None: it is not described."""
    if key in METRICS:
        return key
    return next((name for name in METRICS if re.fullmatch(_pattern(name), key)), None)


def _pattern(name: str) -> str:
    return re.sub("|".join(PLACES), lambda match: PLACES[match[0]], name)
