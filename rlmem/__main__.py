"""`python -m rlmem` is `rlmem`."""

import sys

from rlmem.commands.cli import main

sys.exit(main())
