"""Shipped results that rlmem would no longer reproduce to the digit: `experiments/changes.yaml` lists what changed."""

from functools import cache
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from rlmem.config.catalog import default_choices
from rlmem.config.paths import experiments_dir
from rlmem.evidence.outcome import Record, shipped_records


def stale(item: str, budget: str) -> list[str]:
    """What has changed since the shipped results of an item at a budget; [] if nothing, or if there are none."""
    records = shipped_records(item, budget)
    return [change["what"] for change in _changes() if any(_concerns(change, record) for record in records)]


def _concerns(change: dict[str, Any], record: Record) -> bool:
    if not record.config_hash:  # a measurement, which trains nothing
        return False
    chosen = default_choices() | dict(line.partition("=")[::2] for line in record.overrides.split(" "))
    return _older(record.version, change["since"]) and all(chosen.get(k) in some for k, some in change["of"].items())


def _older(version: str, since: str) -> bool:
    try:
        return Version(version) < Version(since)
    except InvalidVersion:  # unknown: of a file from elsewhere
        return True


@cache
def _changes() -> list[dict[str, Any]]:
    root = experiments_dir()
    file = root / "changes.yaml" if root else None
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file and file.is_file() else []
