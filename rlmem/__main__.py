"""`python -m rlmem` is `rlmem`."""

import sys

from rlmem.cli import main

sys.exit(main())
