"""The formats of run directories and checkpoints, and which of them this version reads.

run.json and every checkpoint have the number of the format that they were written in. What lacks it is of format 0.

    0  rlmem 0.1.0 and early development versions of 0.2.0, which this version does not read
    1  rlmem 0.2.0

A change after which rlmem could not read what the last release wrote, or would read it as something else, takes three
things: `FORMAT` grows by one, `rundir.read` and `checkpoint.read` migrate what is of the format before, and
`tests/data/formats` gets runs of that format. Files change only when the run is resumed. A migration names no code but
rlmem's own, since a received run may choose it, and changes nothing of what it has migrated before: a kill may leave a
new config.yaml beside the run.json of before.
"""

import re
from collections.abc import Mapping
from typing import Any

from rlmem import __version__
from rlmem.config.messages import sentence
from rlmem.core.errors import UserError

OLDEST, FORMAT = 1, 1
"""The first format that this version reads, and the one in which it writes."""

HOME = "https://github.com/rlmem/rlmem"


class OtherFormat(UserError):
    """A run or a checkpoint in a format that this version cannot read."""


def is_number(value: object) -> bool:
    """Whether `value` may be the number of a format."""
    return type(value) is int and 0 <= value < 1000


def require_readable(number: int, where: object, written: Mapping[str, Any]) -> None:
    """Raise OtherFormat, which says what can read it, unless this version reads format `number`.

    where: a run directory or a checkpoint
    written: the version and the commit that wrote it, `rlmem` and `git`, as far as they are known; it may be anybody's
    """
    if OLDEST <= number <= FORMAT:
        return
    version, commit = str(written.get("rlmem")), re.match(r"[0-9a-f]{40}", str(written.get("git")))
    by = f"rlmem {version}" if re.fullmatch(r"\d[\w.+]{,30}", version) else "another version of rlmem"
    if number > FORMAT:
        what = f"was written by {by} in format {number}; rlmem {__version__} reads formats up to {FORMAT}"
        example = f"pip install git+{HOME}{f'@{commit[0]}' if commit else ''}"
    else:
        what = f"was written by an early {by}, which can read it"
        example = f"pip install git+{HOME}@{commit[0]}" if commit else f"a clone of {HOME} at the commit that wrote it"
    raise OtherFormat(sentence(str(where), what, example=example))
