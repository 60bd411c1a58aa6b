"""`rlmem population`: train agents side by side that copy the weights of better ones."""

from pathlib import Path
from typing import Any

from rlmem.commands.toolkit import (
    Count,
    Dir,
    Flag,
    Number,
    Repeated,
    Several,
    Trust,
    Words,
    directory_of_status,
    refuse_changes,
)
from rlmem.config.messages import mistake
from rlmem.core.command import show
from rlmem.core.errors import UserError

TRAINS = True
EXAMPLE = "rlmem population memory=gru env=repeat_first --agents 4 --ready 3000 --vary algo.lr=1e-4,1e-3"


def run(
    what: Words,
    *,
    vary: Repeated = (),
    agents: Several | None = None,
    ready: Several | None = None,
    window: Several | None = None,
    every: Count | None = None,
    level: Number | None = None,
    dir: Dir | None = None,
    ray: Flag = False,
    gpus: Number = 0.0,
    dry_run: Flag = False,
    trust: Trust = False,
) -> None:
    """Train agents side by side. Every so many episodes each is compared with another one, and copies its weights
    if that was better (Welch's t-test); hyperparameters stay. The same command again continues.

    what WHAT: key=value of every agent; DIR; or: status DIR
    vary KEY=VALUES: a,b: assigned in turn; interval(a,b): drawn
    agents: how many agents (9)
    ready: episodes before the first round (30000)
    window: newest episodes to compare (3000)
    every: episodes between rounds (3000)
    level P: copy if the p-value is smaller (0.05)
    dir: where it goes (runs/population-<memory>-<algo>-...)
    ray: each agent in a process of its own, on Ray
    gpus: --ray: GPUs per agent, such as 0.25
    dry_run: check and list the agents only

    Examples:
        memory=gru env=repeat_first --agents 4 --ready 3000 --vary algo.lr=1e-4,1e-3
        memory=lprnn algo=impala env=cued_catch total_steps=3e8 --vary 'algo.lr=tag(log, interval(1e-5,1e-3))'
        runs/mine                              continue
        runs/mine total_steps=2e6              train longer
        status runs/mine
    """
    overrides, places = [text for text in what if "=" in text], [text for text in what if "=" not in text]
    if places[:1] == ["status"]:
        folder = directory_of_status("population", places[1:], "runs/mine")
        from rlmem.jobs.population.spec import print_table

        return print_table(folder)
    if level is not None and not 0 < level < 1:
        raise UserError(f"--level {level}: expected a number between 0 and 1; e.g. --level 0.05")
    if gpus and not ray:
        raise UserError(f"--gpus {gpus}: is what an agent reserves on Ray; e.g. --ray --gpus {gpus}")
    from rlmem.jobs.population import spec as specification
    from rlmem.jobs.population.rounds import train

    named = {"agents": agents, "ready": ready, "window": window, "every": every, "level": level}
    numbers: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if places:
        folder = Path(places[0])
        if not folder.is_dir() or len(places) > 1:
            raise mistake(" ".join(places), "expected key=value, or the directory of a population", example=EXAMPLE)
        refuse_changes(folder, "agents", {**numbers, "vary": vary, "dir": dir, "dry_run": dry_run})
        if overrides:
            specification.change(folder, overrides, trust)
    else:
        spec = specification.PopulationSpec(tuple(overrides), tuple(vary), **numbers)
        if dry_run:
            return show(specification.dry_run(spec))
        specification.start(spec, folder := dir or specification.default_folder(spec))
    train(folder, ray, gpus, trust)
