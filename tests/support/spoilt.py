"""Files that somebody edited or that a disk damaged."""

from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml

from rlmem.record.checkpoint import sha256


def set_value(file: Path, path: str, value: Any) -> None:
    """Put a value at a dotted path of a yaml file."""
    values = yaml.safe_load(file.read_text())
    *parents, last = path.split(".")
    node = values
    for parent in parents:
        node = node.setdefault(parent, {})
    node[last] = value
    file.write_text(yaml.safe_dump(values, sort_keys=False))


def cut_short(path: Path) -> None:
    """Take the last bytes of a file away."""
    path.write_bytes(path.read_bytes()[:-100])


def resealed(path: Path, state: object) -> None:
    """Put another state into a checkpoint, with the right checksum."""
    torch.save(state, path)
    path.with_suffix(".sha256").write_text(sha256(path))


def damage(path: Path, draw: Random) -> str:
    """Damage a file in a random way, and return the way."""
    content = path.read_bytes()
    lines, at = content.splitlines(keepends=True), draw.randrange(len(content))
    line = draw.randrange(len(lines))
    others = sorted(other for other in path.parent.rglob("*") if other.is_file() and other != path)
    ways = {
        "flip": content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :],
        "truncate": content[:at],
        "lengthen": content + draw.choice([b"\n", b"{}\n", b"\0" * 100, b"step: 1\n"]),
        "lose a line": b"".join(lines[:line] + lines[line + 1 :]),
        "repeat a line": b"".join(lines[: line + 1] + lines[line:]),
        "take another": draw.choice([other.read_bytes() for other in others] or [b""]),
        "empty": b"",
    }
    way = draw.choice(sorted(ways))
    path.write_bytes(ways[way])
    return f"{way} {path}"
