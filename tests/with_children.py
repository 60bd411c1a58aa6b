"""`python FILE MODULE ARGS` is `python -m MODULE ARGS`, whose children come from a fork server: a copy of this process.

It has imported what is needed, and has run nothing yet. A server that it would start itself has all that to import.
"""

import os
import runpy
import signal
import socket
import subprocess
import sys

from rlmem.system import forked

sys.path[0] = os.getcwd()
del sys.argv[0]
if forked.AVAILABLE:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        with open(os.devnull, "r+b") as null:
            for number in range(3):
                os.dup2(null.fileno(), number)
        forked._become(*forked._serve(theirs, interrupt))
    theirs.close()
    forked._server = ours
    subprocess.Popen = forked.Popen
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
