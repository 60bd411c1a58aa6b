"""`rlmem sync`: fill W&B from run directories."""

from rlmem.commands.toolkit import Arguments, Parser, folder, integer_from, stdout_to_stderr
from rlmem.errors import Fault, UserError
from rlmem.system.command import show

PARSER = Parser(
    "sync",
    "Upload runs to Weights & Biases from their directories, whatever their loggers were: those rows of\n"
    "metrics.jsonl that W&B does not have yet. Uploading again sends nothing twice.",
    "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
    "RUN RUN --project memory --tags ffm,easy",
)
PARSER.add_argument("runs", nargs="+", type=folder, metavar="RUN", help="run directories")
PARSER.add_argument("--project", metavar="P", help="project (that of the run's logger=wandb, or rlmem)")
PARSER.add_argument("--entity", metavar="E", help="entity (the logger's, or your default)")
PARSER.add_argument("--group", metavar="G", help="group (the logger's)")
PARSER.add_argument("--tags", type=lambda text: text.split(","), metavar="A,B", help="tags (the logger's)")
wait = "seconds to wait for the server (20)"
PARSER.add_argument("--timeout", type=integer_from(1), default=20, metavar="S", help=wait)


def run(args: Arguments) -> int:
    from rlmem.record.loggers import NoKey
    from rlmem.record.upload import upload

    given = {key: getattr(args, key) for key in ("project", "entity", "group", "tags")}
    failed, problems = False, list[str]()
    for run_dir in args.runs:
        try:
            with stdout_to_stderr():
                done = upload(run_dir, given, args.timeout)
        except UserError as error:
            if isinstance(error, NoKey):
                raise
            problems += error.problems
        except Fault as error:
            show(f"rlmem: failed: {error}", error=True)
            failed = True
        else:
            show(done)
    if problems:
        raise UserError(*problems)
    return int(failed)
