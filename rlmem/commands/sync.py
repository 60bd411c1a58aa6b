"""`rlmem sync`: upload runs to Weights & Biases from their directories."""

from rlmem.commands.toolkit import Count, Folders, Names, Text, stdout_to_stderr
from rlmem.core.command import show
from rlmem.core.errors import Fault, UserError


def run(
    runs: Folders,
    *,
    project: Text | None = None,
    entity: Text | None = None,
    group: Text | None = None,
    tags: Names | None = None,
    timeout: Count = 20,
) -> int:
    """Upload runs to Weights & Biases from their directories, whatever their loggers were: those rows of
    metrics.jsonl that W&B does not have yet. Uploading again sends nothing twice.

    runs RUN: run directories
    project P: project (that of the run's logger=wandb, or rlmem)
    entity E: entity (the logger's, or your default)
    group G: group (the logger's)
    tags: tags (the logger's)
    timeout S: seconds to wait for the server

    Examples:
        runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0
        RUN RUN --project memory --tags ffm,easy
    """
    from rlmem.record.loggers import NoKey, upload

    place = {"project": project, "entity": entity, "group": group, "tags": tags}
    failed, problems = False, list[str]()
    for run_dir in runs:
        try:
            with stdout_to_stderr():
                done = upload(run_dir, place, timeout)
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
