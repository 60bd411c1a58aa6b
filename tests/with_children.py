"""`python FILE MODULE ARGS` is `python -m MODULE ARGS`, whose children come from a fork server: a copy of this process.

It has imported what is needed, and has run nothing yet. A server that it would start itself has all that to import.
"""

import os
import runpy
import subprocess
import sys

from rlmem.system import forked

sys.path[0] = os.getcwd()
del sys.argv[0]
if forked.AVAILABLE:
    forked.serve_as_copy()
    subprocess.Popen = forked.Popen
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
