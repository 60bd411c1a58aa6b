"""`python -m rlmem` is `rlmem`."""

from rlmem.commands.cli import main

raise SystemExit(main())
