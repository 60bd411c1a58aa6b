"""How a run ends: its record is closed, and its log says what came of it and what may be done next."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlmem.config.messages import shell
from rlmem.errors import Fault, UserError
from rlmem.loops.base import Loop
from rlmem.record.checkpoint import step_of
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.run.stored import checkpoints


@contextmanager
def recorded(run_dir: Path, progress: Progress) -> Iterator[Recorder]:
    """The record of a run, which is closed at the end.

    If the run ends early, its log says why and how to continue. A Fault or a UserError gets the latter as well; the
    caller prints it.
    """
    recorder, failed = Recorder(run_dir, progress.say), True
    try:
        yield recorder
        failed = False
    except (Fault, UserError) as error:
        *first, last = error.problems if isinstance(error, UserError) else (str(error),)
        problems = [*first, f"{last}; {how_to_continue(run_dir)}"]
        progress.note(f"failed: {'; '.join(problems)}")
        if isinstance(error, Fault):
            raise Fault(problems[0], error.traceback) from error
        raise UserError(*problems) from error
    except BaseException as error:
        reason = "stopped" if isinstance(error, KeyboardInterrupt) else f"failed: {error!r}"
        progress.say(f"{reason}; {how_to_continue(run_dir)}")
        raise
    finally:
        recorder.close(failed)


def how_to_continue(run_dir: Path) -> str:
    """How to continue a run that ended early."""
    paths = checkpoints(run_dir).paths()
    if not paths:
        return f"there is no checkpoint yet; `rlmem resume {shell(run_dir)}` starts from the beginning"
    return f"saved up to step {step_of(paths[-1])}; continue with    rlmem resume {shell(run_dir)}"


def conclusion(run_dir: Path, loop: Loop) -> str:
    """The result of a run that reached its end, and what may be done next."""
    return "\n".join(
        [
            f"done: {loop.collector.steps:,} steps, {loop.updates:,} updates in {loop.elapsed:.0f} s",
            f"  mean evaluation {loop.evaluation_text()} ({loop.evaluation_sample()})",
            f"  results lie in   {run_dir}",
            f"  evaluate         rlmem eval {shell(run_dir)}",
            f"  train longer     rlmem resume {shell(run_dir)} total_steps={2 * loop.total_steps}",
        ]
    )
