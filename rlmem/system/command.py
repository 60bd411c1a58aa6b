"""A process that is one command: its signals, its standard streams and its exit code, from beginning to end."""

import errno
import os
import sys
from collections.abc import Callable

from rlmem.errors import Fault, UserError, brief, printable
from rlmem.system import output, signals


def run_training(action: Callable[[], int], debug: bool = False) -> int:
    """Run `action`, which trains, as the whole of this process; returns the exit code.

    Signals are taken over for good. What cannot be written to a standard stream is dropped, since every run has a log.
    """
    requests = signals.Requests(of_command=True)
    try:
        signals.take_over(requests)
        output.protect(ends=False)
        return requests.ends_with(exit_code(action, debug))
    except BaseException:
        if not requests.raised:
            raise
        return requests.ends_with(1)


def run_printing(action: Callable[[], int], ends: bool, debug: bool = False) -> int:
    """Run `action`, which is called for its output, as the whole of this process; returns the exit code.

    Without its output the command has failed, unless its reader, such as `head`, has seen enough.

    ends: whether it does nothing but print, and ends when its output is not read
    """
    output.protect(ends)
    try:
        code = exit_code(action, debug)
    except output.Unread:
        code = 0
    if (lost := output.flush_stdout()) and code == 0:
        print(f"rlmem: failed: the output cannot be written ({lost})", file=sys.stderr)
        return 1
    return code


def exit_code(action: Callable[[], int], debug: bool = False) -> int:
    """Run `action` here and return its exit code; an error or a stop becomes lines on stderr and a code.

    2: mistakes of the user, a line each; 1: a fault from outside, or a bug, which is raised; 130: Ctrl-C; 75: stopped
    by any other signal

    debug: print the traceback of a mistake or a fault, too
    """
    find_modules_in(os.getcwd())
    try:
        return action()
    except (UserError, Fault) as error:
        if debug:
            import traceback

            traceback.print_exc()
        if isinstance(error, Fault):
            print(f"{error.traceback}rlmem: failed: {error}", file=sys.stderr)
            return 1
        lines = [f"rlmem: error: {problem}" for problem in error.problems]
    except KeyboardInterrupt as error:
        print(f"rlmem: {str(error) or 'interrupted'}", file=sys.stderr)
        return getattr(error, "code", 130)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a path on the command line is too long
            raise
        lines = [f"rlmem: error: {brief(printable(str(error.filename)))}: {error.strerror}"]
    print(*lines, sep="\n", file=sys.stderr)
    return 2


def find_modules_in(folder: str) -> None:
    """Let Python find modules in `folder`, behind all others: a `_target_` may name one of them."""
    if folder not in sys.path:
        sys.path.append(folder)
