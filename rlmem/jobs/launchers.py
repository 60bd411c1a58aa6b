"""`launcher=NAME`: where the jobs of `rlmem train -m` run. It is not part of a run's configuration.

An option is a file of conf/launcher, or of a folder of `hydra.searchpath`, which chooses one of Hydra's launchers and
sets its keys. `launcher.key=value` is Hydra's `hydra.launcher.key=value`; both ways of writing are accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra import compose
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlmem.config.compose import FAILURES, config_loader, root_cause
from rlmem.config.messages import mistake, nearest, sentence, to_text
from rlmem.config.overrides import parse
from rlmem.core.errors import UserError, extra, first_line

EXTRAS = {"joblib": "cluster", "submitit_local": "cluster", "submitit_slurm": "cluster", "ray": "ray", "ray_aws": "ray"}
"""Hydra's launchers that are packages of their own, and the extra of rlmem that installs each."""

EXAMPLE = "rlmem train -m launcher=joblib launcher.n_jobs=2 seed=0,1"


@dataclass(frozen=True)
class Launcher:
    """A launcher by Hydra's name, and Hydra's overrides that choose it and set its keys.

    folder: the multirun's directory
    subdir: that of a job in it, in Hydra's words; `.`: its run lies where a single one would
    """

    name: str
    lines: tuple[str, ...]
    folder: str
    subdir: str

    @property
    def elsewhere(self) -> bool:
        """Whether jobs may run on other machines."""
        return self.name in ("submitit_slurm", "ray", "ray_aws")


def is_about_launcher(override: Override) -> bool:
    """True if an override chooses or sets the launcher."""
    return override.key_or_group.partition(".")[0] == "launcher"


def is_about_all(override: Override) -> bool:
    """True if an override is about all jobs: their launcher, or Hydra itself (but where it searches)."""
    hydra = override.is_hydra_override() and override.key_or_group != "hydra.searchpath"
    return hydra or is_about_launcher(override)


def choose(overrides: Sequence[str]) -> Launcher:
    """The launcher of a command line, checked. Raises UserError with every problem."""
    with config_loader() as loader:
        parsed = parse(overrides)[0]
        ours = [override for override in parsed if is_about_launcher(override)]
        hydra = [str(override.input_line) for override in parsed if override.is_hydra_override()]
        choices = [override for override in ours if override.key_or_group == "launcher"]
        try:
            options = loader.get_group_options("launcher", config_name="config", overrides=hydra)
            if problems := [p for choice in choices if (p := _problem_of_choice(choice, sorted(options)))]:
                raise UserError(*problems)
            chosen = [f"+{choice.input_line}" for choice in choices[-1:]]
            tree = compose("config", overrides=[*chosen, *hydra], return_hydra_config=True)
        except FAILURES as error:
            raise UserError(_not_composed(error, choices)) from error
    name = str(choices[-1].value()) if choices else tree.hydra.runtime.choices["hydra/launcher"]
    if tree.hydra.runtime.choices["hydra/sweeper"] != "basic":
        what = "Hydra's other sweepers are not for -m; a search is `rlmem sweep --trials`"
        raise mistake("hydra/sweeper", what, example="rlmem sweep --trials 20 'algo.lr=interval(1e-4,1e-2)'")
    keys = [override for override in ours if override not in choices]
    if problems := [problem for key in keys if (problem := _problem_of_key(tree, key, name))]:
        raise UserError(*problems)
    lines = [*chosen, *(f"++hydra.{key.input_line}" for key in keys), *hydra]
    written: Any = OmegaConf.to_container(tree.hydra.sweep)  # not resolved: every job does that itself
    folder, subdir = str(tree.hydra.sweep.dir), str(written["subdir"])
    return Launcher(tree.hydra.runtime.choices["hydra/launcher"], tuple(lines), folder, subdir)


def _problem_of_choice(choice: Override, options: Sequence[str]) -> str | None:
    line, name, near = str(choice.input_line), choice.value(), list[str]()
    if choice.type is None or line.startswith(("+", "~")):
        what = "choose a launcher without `+` or `~`"
    elif choice.is_sweep_override() or isinstance(name, (list, dict)):
        what = "one launcher runs all jobs"
    elif name not in options:
        what, near = "no such launcher", nearest(name, options)
    else:
        return None
    return sentence(line, what, near=near, accepted=options, example=EXAMPLE)


def _problem_of_key(tree: DictConfig, override: Override, name: str) -> str | None:
    """Set one key of the launcher in the composed `tree`; returns why that is refused, None if it is not."""
    line, parts = str(override.input_line), override.key_or_group.split(".")
    if override.is_sweep_override() or line.startswith(("+", "~")):
        return sentence(line, "expected launcher.key=value with one value for all jobs", example=EXAMPLE)
    node = tree.hydra.launcher
    for depth in range(1, len(parts)):
        walked, part = ".".join(parts[:depth]), parts[depth]
        if not isinstance(node, DictConfig):
            return sentence(line, f"`{walked}` is a value, not a section", example=f"{walked}={to_text(node)}")
        if OmegaConf.get_type(node) is dict:  # arguments for others, such as ray.init: its keys are free
            break
        if part not in node:
            names = sorted(str(key) for key in node if not str(key).startswith("_"))
            near = [f"{walked}.{key}" for key in nearest(part, names)]
            return sentence(line, f"launcher={name} has no such key", near=near, accepted=names, example=EXAMPLE)
        node = node[part]
    try:
        OmegaConf.update(tree, f"hydra.{override.key_or_group}", override.value(), force_add=True)
    except OmegaConfBaseException as error:
        return sentence(line, first_line(error))
    return None


def _not_composed(error: BaseException, choices: Sequence[Override]) -> str:
    """What to say of a launcher that Hydra does not find, or of another failure to compose it."""
    group, _, name = (getattr(error, "missing_cfg_file", None) or "").rpartition("/")
    if group != "hydra/launcher":
        return root_cause(error)
    where = str(choices[-1].input_line) if choices else f"hydra/launcher={name}"
    if name in EXTRAS:
        return sentence(where, "its package is not installed", example=extra(EXTRAS[name]))
    accepted = sorted(getattr(error, "options", None) or ())
    return sentence(where, "Hydra has no such launcher", near=nearest(name, accepted), accepted=accepted)
