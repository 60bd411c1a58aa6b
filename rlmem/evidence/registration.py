"""Registered expectations: what an item expects of its runs, and when that was written down.

`registered.json` has, by item and budget, every version of the expectations with its date, and the date of the first
counted run. It lies in the folder of the shipped experiments, next to an experiment file of your own, and in the folder
of a reproduction. The budget `smoke` is never judged, so its runs do not count.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

from rlmem.core import received
from rlmem.core.errors import UserError, writing
from rlmem.evidence.expect import parse_all
from rlmem.evidence.statistics import POCOCK
from rlmem.record import rundir

FILE = "registered.json"
COUNTED = ("laptop", "paper")
"""The budgets whose runs count."""


@dataclass(frozen=True)
class Version:
    """One version of what an item expects at a budget.

    registered: date and time at which it was registered, ISO 8601 with an offset; "" if it is not registered
    metric: the number in a cell
    higher: True if more of it is better
    expect: the expectations as sentences of `rlmem.evidence.expect`
    looks: how often the verdict may be looked at while seeds are added

    Versions that expect the same are equal, whenever they were registered. They leave out seeds, peers and bounds.
    """

    registered: str = field(compare=False)
    metric: str
    higher: bool
    expect: tuple[str, ...]
    looks: int = 1

    @property
    def hash(self) -> str:
        """Twelve digits of the SHA-256 of everything but the date."""
        content = [self.metric, self.higher, self.expect, *([self.looks] if self.looks > 1 else [])]
        return sha256(json.dumps(content).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Look:
    """A verdict on finished runs: its date and time, ISO 8601 with an offset, and the seeds of the runs."""

    date: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Registration:
    """The versions of an item's expectations at a budget, in the order of their dates, and what is known of its runs.

    first_run: date and time of the first counted run, ISO 8601 with an offset; None if there is none
    looks: the first verdict on every set of seeds, in the order of their dates
    """

    versions: tuple[Version, ...] = ()
    first_run: str | None = None
    looks: tuple[Look, ...] = ()

    @property
    def before_runs(self) -> Version | None:
        """The last version that was registered before the first counted run; None if there is none."""
        if self.first_run is None:
            return self.versions[-1] if self.versions else None
        first = datetime.fromisoformat(self.first_run)
        early = [version for version in self.versions if datetime.fromisoformat(version.registered) <= first]
        return early[-1] if early else None

    def begun(self, time: str | None) -> "Registration":
        """The registration with a counted run at this time, if it is known; the earliest run counts."""
        times = [known for known in (self.first_run, time) if known]
        return replace(self, first_run=min(times, key=datetime.fromisoformat, default=None))

    def with_runs(self, other: "Registration") -> "Registration":
        """The registration with the runs and looks of another one; of looks at the same seeds, the first one counts."""
        looks = sorted((*self.looks, *other.looks), key=lambda look: datetime.fromisoformat(look.date))
        first = {look.seeds: look for look in reversed(looks)}.values()
        return replace(self.begun(other.first_run), looks=tuple(reversed(first)))

    def allowed(self, looks: int) -> int:
        """How often all seeds may be looked at: `looks`, if they were registered before the first look; else once."""
        planned = [datetime.fromisoformat(version.registered) for version in self.versions if version.looks == looks]
        first = min((datetime.fromisoformat(look.date) for look in self.looks), default=None)
        return looks if first is None or min(planned, default=first) < first else 1

    def earlier(self, seeds: Sequence[int]) -> list[Look]:
        """The looks at some of these seeds before the first one at exactly these."""
        before = takewhile(lambda look: {*look.seeds} != {*seeds}, self.looks)
        return [look for look in before if {*look.seeds} & {*seeds}]


def stamp(time: datetime) -> str:
    """A local time as ISO 8601 with the offset of this machine."""
    return time.astimezone().isoformat(timespec="seconds")


def read(file: Path, name: str) -> dict[str, Registration]:
    """Budget -> registration of an item, from a file that `write` wrote; {} if it has none. Raises UserError."""
    try:
        content = received.json_of(file) if file.exists() else {}
        entries = {item: of_item.items() for item, of_item in content.items()}
        return {budget: _from_json(entry) for budget, entry in entries.get(name, ())}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{file}: cannot be read ({why}); expected what `rlmem reproduce --register` wrote") from error


def known(file: Path, name: str, budget: str) -> Registration:
    """What a file that `write` wrote has of an item at a budget, which may be nothing. Raises UserError."""
    return read(file, name).get(budget, Registration())


def write(file: Path, name: str, budget: str, registration: Registration) -> None:
    """Write the registration of an item at a budget into a file, and keep all others that it has. Raises UserError."""
    versions = [asdict(version) | {"hash": version.hash} for version in registration.versions]
    versions = [{k: v for k, v in version.items() if (k, v) != ("looks", 1)} for version in versions]
    read(file, name)  # a damaged file is refused, not replaced
    content = received.json_of(file) if file.exists() else {}
    about = {"versions": versions, "first_run": registration.first_run}
    about |= {"looks": [asdict(look) for look in registration.looks]} if registration.looks else {}
    of_item = content.get(name, {}) | {budget: about}
    content = dict(sorted((content | {name: dict(sorted(of_item.items()))}).items()))
    with writing(file, "a copy of the experiment file in a folder of your own"):
        file.parent.mkdir(parents=True, exist_ok=True)
        rundir.write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _from_json(entry: Mapping[str, Any]) -> Registration:
    versions = []
    for stored in entry["versions"]:
        about = stored["registered"], stored["metric"], stored["higher"], tuple(stored["expect"])
        if (planned := stored.get("looks", 1)) not in range(1, len(POCOCK) + 1):
            raise ValueError(f"{planned} looks are too many")
        version = Version(*about, looks=planned)
        parse_all(stored["expect"])
        if version.hash != stored["hash"]:
            raise ValueError(f"the expectations of {version.registered} do not have the hash {stored['hash']}")
        versions.append(version)
    first_run = entry["first_run"]
    looks = tuple(Look(look["date"], tuple(sorted(look["seeds"]))) for look in entry.get("looks", ()))
    if not all(type(seed) is int for look in looks for seed in look.seeds):
        raise ValueError("a seed of a look is not an integer")
    for date in (*(version.registered for version in versions), *(look.date for look in looks), first_run):
        if date is not None and datetime.fromisoformat(date).tzinfo is None:
            raise ValueError(f"{date} has no offset from UTC")
    return Registration(tuple(versions), first_run).with_runs(Registration(looks=looks))


def change(version: Version, registration: Registration) -> str | None:
    """A sentence if the expectations are not those that were registered before the first counted run; else None.

    version: the expectations as they are now
    """
    before = registration.before_runs
    if before and before == version and before.registered == registration.first_run:
        return f"expectations have the date of the first results ({before.registered[:10]}), and may be younger"
    if registration.first_run is None or before == version or not (before or version.expect):
        return None
    later = registration.versions[registration.versions.index(before) + 1 if before else 0 :]
    dates = [v.registered[:10] for v in later] + (["not registered"] if version not in registration.versions else [])
    when = f"first results {registration.first_run[:10]}, changes: {', '.join(dict.fromkeys(dates))}"
    return f"expectations changed after the first results ({when})"
