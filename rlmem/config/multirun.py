"""`rlmem train -m`: one job per combination, through Hydra's own sweepers and launchers.

Every job is composed and checked before the first one starts; Hydra then runs `job` once per combination.
"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from rlmem.config.compose import Base, Config, compose_base, config_loader, load
from rlmem.config.messages import sentence
from rlmem.config.overrides import parse
from rlmem.config.paths import conf_dir
from rlmem.errors import UserError


class JobFailed(Exception):
    """A job of a multirun raised; its traceback has been printed where it ran."""


def check(overrides: Sequence[str]) -> list[Config]:
    """The configuration of every job, or a UserError with the problems of all of them.

    A sweeper other than Hydra's basic one chooses values as it goes: then only the constant ones are checked.
    """
    configs, problems = [], parse(overrides)[1]
    for job_overrides in expand(overrides):
        try:
            configs.append(load(job_overrides))
        except UserError as error:
            problems += error.problems
    problems += _shared_run_dir(configs)
    problems = problems or _unfit(configs)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return configs


def _unfit(configs: Sequence[Config]) -> list[str]:
    """Why choices do not go together, found by assembling every combination once, whatever its seed."""
    from rlmem.train import plan

    distinct = {repr(config.values | {"seed": 0, "run_dir": None}): config for config in configs}
    problems: list[str] = []
    for config in distinct.values():
        try:
            plan(config)
        except UserError as error:
            problems += error.problems
    return problems


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The readable overrides of every job, in Hydra's order."""
    with config_loader() as loader:
        parsed, _ = parse(overrides, loader)
        if not _basic_sweeper(parsed):
            return [[str(o.input_line) for o in parsed if o.is_hydra_override() or not o.is_sweep_override()]]
        return [list(job) for job in itertools.product(*map(_values, parsed))]


def launch(overrides: Sequence[str]) -> None:
    """Hand checked overrides to Hydra. Raises JobFailed for the first job that failed, after all have run."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["rlmem", "--multirun", *_with_new_keys(overrides)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let exceptions through instead of printing them
    try:
        job()
    finally:
        sys.argv = argv
        os.environ.pop("HYDRA_FULL_ERROR")
        if full_error is not None:
            os.environ["HYDRA_FULL_ERROR"] = full_error


@hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
def job(_: DictConfig) -> float:
    """One job: the same composition and checks as a single run. Returns the objective for the sweeper."""
    given = HydraConfig.get().overrides
    overrides = [line.removeprefix("++") for line in given.task]
    try:
        from rlmem.train import train

        return train(load([line for line in given.hydra if line.startswith("hydra.searchpath")] + overrides))
    except Exception as error:
        name = " ".join(overrides) or "(no overrides)"
        if isinstance(error, UserError):
            print(*(f"rlmem: error: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        else:
            traceback.print_exc()
        print(f"rlmem: job failed: {name}", file=sys.stderr, flush=True)
        raise JobFailed(name) from error


def _basic_sweeper(parsed: Sequence[Override]) -> bool:
    return all(o.value() == "basic" for o in parsed if o.key_or_group == "hydra/sweeper")


def _values(override: Override) -> list[str]:
    line = str(override.input_line)
    if override.is_hydra_override() or not override.is_sweep_override():
        return [line]
    if not override.is_discrete_sweep():
        raise UserError(sentence(line, "no list or range of values", example="rlmem train -m seed=0,1,2"))
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _shared_run_dir(configs: Sequence[Config]) -> list[str]:
    given = [config.values["run_dir"] for config in configs if config.values["run_dir"] is not None]
    if len(given) == len(set(given)):
        return []
    return [f"run_dir={given[0]}: {len(configs)} jobs would share one run directory; leave run_dir out"]


def _with_new_keys(overrides: Sequence[str]) -> list[str]:
    """Hydra sets a key that its first composition lacks only with `++`: one of a free mapping (`env.params.k=4`), or
    of options that are swept (`algo=dqn,sacd algo.batch_size=500`), which that composition does not know."""
    parsed = parse(overrides)[0]
    base, _, _ = compose_base([str(o.input_line) for o in parsed if not o.is_sweep_override()])
    given = [o for o in parsed if not o.is_hydra_override()]
    new = {o.input_line for o in given if _absent(base, o.key_or_group)}
    return [f"++{line}" if line in new else line for line in overrides]


def _absent(base: Base, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(base.tree, parent) if parent else base.tree
    return name not in (node or ())
