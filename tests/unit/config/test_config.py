"""Composition, messages, validation against constructors, provenance."""

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
import yaml
from annotated_types import Ge, Gt, Interval, Le
from helpers import options
from pydantic import ValidationError

from rlmem.commands.config import as_yaml
from rlmem.config.catalog import sources
from rlmem.config.compose import Config, apply, explain, load
from rlmem.config.messages import describe
from rlmem.config.paths import conf_dir
from rlmem.config.schema import NODES
from rlmem.config.targets import build, locate, parameters
from rlmem.config.validate import coerce, validate
from rlmem.core.errors import UserError
from rlmem.jobs import multirun
from rlmem.memory import Memory


def rows_of_options() -> list[Any]:
    """Every option of `conf/`, one of each group at a time; encoders alone, because algorithms set their keys."""
    groups = sorted(path.name for path in conf_dir().glob("[!_]*") if path.is_dir())
    names = {group: options(group) for group in groups if group != "launcher"}  # which is no part of a run
    rows = [{"encoder": name} for name in names.pop("encoder")]
    for row in zip_longest(*names.values()):
        rows.append({group: name for group, name in zip(names, row, strict=True) if name is not None})
    slow = {True: pytest.mark.slow, False: ()}  # environments alone, which the contract of environments makes
    return [pytest.param(row, id="-".join(row.values()), marks=slow[[*row] == ["env"]]) for row in rows]


REQUIRED = {"gym": ["env.id=CartPole-v1"], "pomdp": ["env.file=tiger"]}


class Toy(Memory):
    """A stand-in for a user's own memory."""

    forward: Any = None

    def __init__(
        self,
        input_size: int,
        width: Annotated[int, Gt(0)] = 8,
        rate: Annotated[float, Gt(0)] | None = None,
        mode: Literal["fast", "exact"] = "fast",
        sizes: tuple[Annotated[int, Gt(0)], ...] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.input_size, self.width, self.sizes = input_size, width, sizes


TOY = f"{__name__}.Toy"


def problems(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        load(overrides)
    found = caught.value.problems
    assert all("\n" not in problem for problem in found)
    return found


@pytest.mark.parametrize("row", rows_of_options())
def test_every_option_composes_and_fits_its_constructor(row):
    config = load([*(f"{group}={name}" for group, name in row.items()), *REQUIRED.get(row.get("env", ""), [])])
    assert validate(config.values) == (config.values, [])
    for group, name in row.items():
        assert name in config.choices[group]
        if group in NODES and "_target_" in config.values[group]:
            written = config.values[group].keys() - {"_target_"}
            assert parameters(locate(config.values[group]["_target_"])).keys() - set(NODES[group].supplied) <= written


def test_all_problems_of_a_command_line_come_at_once():
    found = problems("memroy=ffm", "memory=fmf", "algo.lr=abc", "algo.lrr=1", "seed=-1", "oops", "env=gym")
    for start in ("memroy", "memory=fmf", "algo.lr=abc", "algo.lrr", "seed=-1", "oops", "env.id"):
        assert len([line for line in found if line.startswith(start)]) == 1


def test_numbers_are_lenient_where_nothing_is_lost():
    config = load(["total_steps=1e6", "algo.lr=1"])
    assert config.values["total_steps"] == 1_000_000
    assert type(config.values["total_steps"]) is int
    assert type(config.values["algo"]["lr"]) is float


def test_values_are_plain_and_interpolations_resolved():
    config = load(["run_dir=runs/${seed}", "seed=3", "logger=[local,wandb]"])
    assert config.values["run_dir"] == "runs/3"
    assert config.choices["logger"] == ["local", "wandb"]
    assert yaml.safe_load(yaml.safe_dump(config.values)) == config.values
    assert "hydra" not in config.values


def test_a_mapping_argument_takes_any_key():
    assert load(["env.params.k=4"]).values["env"]["params"] == {"k": 4}
    assert load(["env=gym", "env.id=X", "env.kwargs={a: {b: 1}}"]).values["env"]["kwargs"] == {"a": {"b": 1}}


def test_a_published_setting_may_fix_the_budget_and_the_command_line_still_wins():
    assert load(["algo=ppo_popgym"]).values["total_steps"] == 15_000_000
    assert load(["algo=ppo_popgym", "total_steps=5"]).values["total_steps"] == 5


def test_a_users_class_is_held_to_its_own_signature():
    stale = problems(f"memory._target_={TOY}", "memory=gru", "memory.width=0", "memory.wdth=1")
    assert any(line.startswith("memory.hidden_size=") and "conf/memory/gru.yaml:" in line for line in stale)
    assert any(line.startswith("memory.width=0 (command line): expected an integer > 0") for line in stale)
    assert any("memory.wdth=1" in line and "`memory.width`" in line for line in stale)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "needs_extra.py").write_text("import no_such_extra\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="needs_extra needs the package `no_such_extra`, which is not installed"):
        locate("needs_extra.Thing")


def test_the_search_path_adds_options_and_their_lines_are_cited(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "toy.yaml").write_text(f"# Toy\n_target_: {TOY}\nwidth: wide\n")
    (line,) = problems("memory=toy", f"hydra.searchpath=[file://{tmp_path}]")
    assert f"memory.width=wide ({tmp_path}/memory/toy.yaml:3): expected an integer > 0" in line


def test_build_calls_the_target_with_its_keys_and_the_runtime_arguments():
    toy = build({"_target_": TOY, "width": 3}, input_size=5)
    assert (toy.input_size, toy.width) == (5, 3)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Annotated[int, Gt(0)], "an integer > 0"),
        (Annotated[float, Ge(0), Le(1)] | None, "a number >= 0 and <= 1 or null"),
        (Annotated[float, Interval(gt=0, lt=1)], "a number > 0 and < 1"),
        (Literal["a", "b"], "one of a, b"),
        (list[Annotated[int, Gt(0)]], "a list [...] of an integer > 0"),
        (dict[str, Any], "a mapping {key: value}"),
        (bool, "true or false"),
    ],
)
def test_types_are_said_in_words(kind, words):
    assert describe(kind) == words


def test_sequences_are_coerced_item_by_item():
    assert coerce([1.0, 2], tuple[int, ...]) == [1, 2]
    with pytest.raises(ValidationError):
        coerce([1.5], tuple[int, ...])


class Note(TypedDict):
    """A kind for which pydantic takes no settings."""

    a: int


def test_a_kind_without_a_hash_is_checked_or_taken_as_it_is():
    assert coerce(3, Annotated[int, ["no hash"]]) == 3
    assert coerce({"a": 1}, Annotated[Note, ["no hash"]]) == {"a": 1}


def test_a_stored_run_takes_values_but_not_groups():
    stored = load(["memory=gru"])
    changed = apply(stored, ["total_steps=2e6", "algo.lr=0.1"])
    assert changed.values["total_steps"] == 2_000_000
    assert changed.choices == stored.choices
    assert changed.overrides == ("memory=gru", "total_steps=2e6", "algo.lr=0.1")
    assert stored.values["total_steps"] != 2_000_000
    with pytest.raises(UserError) as caught:
        apply(stored, ["memory=ffm", "algo.lrr=1", "seed=x"])
    group, key, value = caught.value.problems
    assert "memory=ffm: `memory` is fixed for this run (gru)" in group
    assert "did you mean `algo.lr`?" in key
    assert "seed=x (command line): expected an integer" in value


def test_a_stored_value_that_no_longer_fits_is_said():
    values = load([]).values
    values["seed"] = -1
    with pytest.raises(UserError, match=r"seed=-1 \(the stored run\)"):
        apply(Config(values, {}, ()), [])


def test_every_value_has_the_line_that_set_it():
    _, origins = explain(["algo=ppo_popgym", "env=repeat_first", "memory.hidden_size=64", "env.params={k: 2}"])
    for path, origin in origins.items():
        if origin == "command line":
            continue
        file, _, number = origin.partition(":")
        line = (conf_dir().parent / file).read_text().splitlines()[int(number) - 1]
        assert line.strip().startswith(f"{path.rpartition('.')[2]}:")
    assert origins["env.num_envs"].startswith("conf/algo/ppo_popgym.yaml:")
    assert origins["env.level"].startswith("conf/env/_popgym.yaml:")
    assert origins["env.name"].startswith("conf/env/repeat_first.yaml:")
    assert origins["logger.local"].startswith("conf/logger/local.yaml:")
    assert {p for p, o in origins.items() if o == "command line"} == {
        "memory.hidden_size",
        "env.params.k",
    }


def test_the_explained_yaml_reads_back_as_the_configuration():
    config, origins = explain(["algo.lr=1e-5", "run_dir='a: b'", "logger=[local,wandb]"])
    assert yaml.safe_load(as_yaml(config.values, origins)) == config.values


def test_later_files_win_in_provenance(tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("x: 1\ny: {z: 2}\n")
    second.write_text("# comment\nz: 3\n")
    assert sources([("", first), ("y", second)]) == {"x": f"{first}:1", "y.z": f"{second}:2"}


def test_a_sweep_expands_to_its_jobs():
    jobs = multirun.jobs_of(["memory=ffm,gru", "seed=range(2)", "algo.lr=0.1", "encoder.hidden_size=choice(1,2)"])
    assert len(jobs) == 8
    assert jobs[0] == ("memory=ffm", "seed=0", "algo.lr=0.1", "encoder.hidden_size=1")
    assert [job[0] for job in multirun.jobs_of(["env=glob(repeat*)"])] == [
        "env=repeat_first",
        "env=repeat_previous",
    ]


def test_the_mistakes_of_all_jobs_come_before_the_first_job_once_each():
    with pytest.raises(UserError) as caught:
        multirun.check(["memory=ffm,gur", "seed=-1,0", "foo=1", "oops"])
    starts = [line.partition(" ")[0].rstrip(":") for line in caught.value.problems]
    assert sorted(starts) == ["foo=1", "memory=gur", "oops", "seed=-1"]


def test_the_layer_of_a_stack_is_checked_and_built_from_its_own_node():
    lines = ["memory=stack", "memory.hidden_size=12", "memory.layer={_target_: rlmem.memory.ffm.FFM, trace_size: 4.0}"]
    config = load(lines)
    assert config.values["memory"]["layer"] == {"_target_": "rlmem.memory.ffm.FFM", "trace_size": 4}
    assert validate(config.values) == (config.values, [])
    assert yaml.safe_load(yaml.safe_dump(config.values)) == config.values
    stack = build(config.values["memory"], input_size=5)
    assert [(one.input_size, one.output_size, one.state_shape) for one in stack.layers] == [(12, 12, (4, 4))] * 2


def test_stacks_of_stacks_are_checked_to_the_bottom():
    inner = "{_target_: rlmem.memory.gru.GRU, h: 1}"
    (line,) = problems("memory=stack", f"memory.layer={{_target_: rlmem.memory.stack.Stack, layer: {inner}}}")
    assert line.startswith("memory.layer.layer.h=1 (command line): no such key for rlmem.memory.gru.GRU")


def test_a_section_that_came_from_the_command_line_is_not_blamed_on_another_source():
    (line,) = problems("memory=gru", "memory.layer._target_=rlmem.memory.ffm.FFM")
    assert line.startswith("memory.layer={_target_: rlmem.memory.ffm.FFM} (command line): no such key for")


def test_a_file_that_changes_is_read_again(tmp_path, monkeypatch):
    """Compositions are remembered, but not beyond the files that they were made of."""
    (tmp_path / "conf/memory").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    mine = Path("conf/memory/mine.yaml")
    for size in (8, 16):
        mine.write_text(f"_target_: rlmem.memory.GRU\nhidden_size: {size}\n")
        for seed in (0, 1):
            assert load(["memory=mine", f"seed={seed}"]).values["memory"]["hidden_size"] == size
    mine.unlink()
    assert "no option mine" in problems("memory=mine")[0]
