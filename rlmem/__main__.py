"""`python -m rlmem` is `rlmem`."""

import os
import sys
from contextlib import suppress

with suppress(FileNotFoundError):  # the current folder was deleted
    if sys.path[0] == os.getcwd():  # where packages might find a module of a name that they look for
        del sys.path[0]

from rlmem.commands.cli import main

raise SystemExit(main())
