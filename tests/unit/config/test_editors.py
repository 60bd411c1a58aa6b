"""The JSON schemas of configuration files accept every shipped file, and refuse what a run would refuse."""

import json
from functools import cache

import pytest
import yaml
from helpers import fast_only
from jsonschema import Draft202012Validator

from rlmem.commands.cli import main
from rlmem.config.paths import conf_dir
from rlmem.config.schema import GROUPS
from rlmem.config.validate import WHOLE, schema

OTHERS = ("launcher", "logger", "wrapper", "_tasks")  # _tasks/rules.yaml is no configuration
FILES = sorted(file for file in conf_dir().rglob("*.yaml") if file.parent.name not in OTHERS)
GRU, FFM, GYM = "_target_: rlmem.memory.gru.GRU", "_target_: rlmem.memory.ffm.FFM", "_target_: rlmem_envs.vector.make"


@cache
def validator_of(name: str) -> Draft202012Validator:
    """The validator of a whole configuration or of a group."""
    return Draft202012Validator(schema(name))


@pytest.mark.slow
def test_every_shipped_file_is_accepted():
    assert len(FILES) > 100
    for file in FILES:
        own = file.parent.name in GROUPS and "_global_" not in file.read_text().partition("\n")[0]
        validator = validator_of(file.parent.name if own else WHOLE)
        validator.check_schema(validator.schema)
        problems = validator.iter_errors(yaml.safe_load(file.read_text()) or {})
        assert [problem.message for problem in problems] == [], file


ACCEPTED = {
    "memory": [f"{GRU}\nhidden_size: 64", "hidden_size: 64", "_target_: mine.Memory\nanything: 3", "defaults: [gru]"],
    "env": [f"{GYM}\nid: CartPole-v1\nnum_envs: 3", "level: hard"],
    WHOLE: ["total_steps: 1000000\nalgo: {lr: 0.001}\nmemory: {hidden_size: 8}", "seed: ${oc.env:SEED}"],
}
REFUSED = {
    "memory": [
        *(f"hidden_size: {value}" for value in ("wide", 0, -3, 1.5, [64])),
        "hiden_size: 64",
        f"{GRU}\nhidden: 64",
        f"{GRU}\nhidden_size: true",
        f"{FFM}\nhidden_size: null",
        "_target_: 3",
        "[hidden_size, 64]",
    ],
    "batching": ["length: short", "_target_: rlmem.batching.Segment\ninit_state: sored", "defaults: segment"],
    "encoder": ["prev_action: maybe"],
    "env": ["level: 3\nlevels: 4", f"{GYM}\nid: 3"],
    "algo": ["lr: fast", "clip: -0.2"],
    WHOLE: ["total_step: 1000", "total_steps: 0", "device: gpu", "checkpoint: {kept: 2}", "algo: {lrr: 0.1}"],
}


def cases(texts: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Every text with its kind; those of kinds whose schemas only slow tests build are slow."""
    return fast_only(
        lambda case: case[0] in ("memory", WHOLE), [(kind, text) for kind in texts for text in texts[kind]]
    )


@pytest.mark.parametrize(("kind", "text"), cases(ACCEPTED))
def test_what_a_run_takes_is_accepted(kind, text):
    assert list(validator_of(kind).iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize(("kind", "text"), cases(REFUSED))
def test_mistakes_are_refused(kind, text):
    assert list(validator_of(kind).iter_errors(yaml.safe_load(text)))


def test_the_command_prints_what_editors_read(capsys):
    assert main(["config", "--schema", "memory"]) == 0
    assert json.loads(capsys.readouterr().out) == schema("memory")
    assert main(["config", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
    assert main(["config", "--schema", "memori"]) == 2
