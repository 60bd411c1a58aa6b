"""Whether this user wrote a file: a keyed hash (HMAC) of its text, in the file's first line.

A configuration names the classes that a run is built from. In a run directory that somebody else made, or edited, it
is data: only what bears this user's seal may name code outside rlmem (`rlmem.config.foreign`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

VARIABLE = "RLMEM_KEY"
"""The environment variable that holds the key where machines share no home directory; any text will do."""

MARK = "# seal: "


def sealed(text: str) -> str:
    """`text` under a first line that says it is this user's; `text` alone if the user can have no key."""
    key = _key(make=True)
    return text if key is None else f"{MARK}{_digest(key, text)}\n{text}"


def is_own(text: str) -> bool:
    """Whether `sealed` made this text with this user's key, and nobody has changed it since."""
    first, _, rest = text.partition("\n")
    key = _key(make=False)
    if key is None or not first.startswith(MARK):
        return False
    return hmac.compare_digest(first.removeprefix(MARK).encode(), _digest(key, rest).encode())


def key_file() -> Path:
    """Where the key of this user lies unless RLMEM_KEY holds one."""
    configured = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configured) if configured else Path("~/.config").expanduser()) / "rlmem" / "key"


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The key of this user; None if there is none, or others could have read or written it."""
    if given := os.environ.get(VARIABLE):
        return given.encode()
    try:
        path = key_file()
        if make and not path.exists():
            _make(path)
        if path.stat().st_mode & 0o077:
            return None
        return path.read_bytes().strip() or None
    except (OSError, RuntimeError):  # no home directory, or one that cannot be read or written
        return None


def _make(path: Path) -> None:
    """Draw a key. The first of several processes that do so at once wins, since a link is made once only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    drawn = path.with_name(f"key.{secrets.token_hex(8)}")
    descriptor = os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with suppress(FileExistsError):
            os.link(drawn, path)
    finally:
        drawn.unlink()
