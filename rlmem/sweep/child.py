"""What a sweep starts, with PARENT and `train ...` as arguments: `rlmem train ...` that ends with PARENT."""

from __future__ import annotations

import sys

from rlmem.system.signals import die_with


def main() -> int:
    parent, *arguments = sys.argv[1:]
    die_with(int(parent))
    from rlmem.commands.cli import main as rlmem

    sys.argv = ["rlmem", *arguments]
    return rlmem()


if __name__ == "__main__":
    sys.exit(main())
