"""What is said, and what may be typed: commands that can be pasted, names that are understood, things said once."""

import ast
import os
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from helpers import ROOT, SMALLEST, refusal

from rlmem.commands.cli import VERBS, main
from rlmem.config.catalog import catalog
from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.core.errors import SIZES, Fault, as_faults
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.spec import SweepSpec
from rlmem.memory import GRU
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import train

# --- commands that can be pasted


def pasted(text: str, verb: str) -> list[list[str]]:
    """The words of every printed command of a verb, as a shell reads them."""
    found = re.findall(rf"\brlmem {verb} [^`\n]*", text)
    return [shlex.split(command) for command in found]


def test_the_commands_that_a_run_prints_name_its_directory_whatever_it_is_called(in_tmp, capsys):
    run_dir = "my runs/größe = $HOME's"
    train(load([*SMALLEST, f"run_dir={run_dir}"]))
    said = capsys.readouterr().out
    assert [words[2] for verb in ("eval", "resume") for words in pasted(said, verb)] == [run_dir, run_dir]
    (command,) = pasted(said, "eval")
    assert main([*command[1:], "--episodes", "1"]) == 0


OURS = {
    "dataset.py: action",
    "overrides.py: near",
}
"""What stands there unquoted: words of rlmem's own, and what is quoted already."""


@pytest.mark.slow
def test_every_command_that_is_printed_is_quoted():
    """Read from the source: what stands behind `rlmem VERB` in a text goes through `shell`, or `shlex` itself."""
    command, unquoted = re.compile(rf"rlmem ({'|'.join(VERBS)})( -m| status)? $"), set()
    for path in (ROOT / "rlmem").rglob("*.py"):
        texts = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.JoinedStr)]
        for before, after in (pair for text in texts for pair in pairwise(text.values)):
            if isinstance(before, ast.Constant) and isinstance(after, ast.FormattedValue):
                code = ast.unparse(after.value)
                if command.search(before.value) and not code.startswith(("shell(", "shlex.quote(")):
                    unquoted.add(f"{path.name}: {code}")
    assert unquoted <= OURS


# --- paths as they are typed

PATHS = [
    "bad/über",
    "a=b",
    "x~y",
    "a b",
    "it's",
    "(x)",
    "a{b",
    "[a]",
    "1e3",
    "true",
    "007",
    "a#1",
    "日本/x",
    "b\\",
    " a",
]


def test_a_path_is_what_is_typed():
    for path in PATHS:
        values = load(["algo=dqn", *(f"{key}={path}" for key in ("run_dir", "init_from", "algo.replay_dir"))]).values
        assert [values["run_dir"], values["init_from"], values["algo"]["replay_dir"]] == [path] * 3


def test_a_path_may_begin_at_home_and_hold_interpolations_and_quotes(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    typed = {"~/x=y": "/home/me/x=y", "~": "/home/me", "ü/${seed}": "ü/0", "'~/x'": "~/x", "null": None}
    assert {path: load([f"run_dir={path}"]).values["run_dir"] for path in typed} == typed


def test_several_paths_are_still_several_jobs(capsys):
    assert main(["train", "-m", "--dry-run", "run_dir=one,two", *SMALLEST]) == 0
    assert capsys.readouterr().out.endswith("\n2 jobs\n")


def test_a_run_whose_path_hydra_does_not_read_trains_and_its_stored_path_is_the_same(in_tmp):
    train(load([*SMALLEST, "run_dir=größe/a=b~"]))
    assert list(read_jsonl(in_tmp / "größe" / "a=b~" / "metrics.jsonl"))


def test_a_sweep_lies_where_it_was_told_to_and_says_so(in_tmp, capsys):
    folder = in_tmp / "größe = 1"
    folder.mkdir()
    manifest = Manifest(folder)
    manifest.submit(SweepSpec(("seed=0",)), [Job("", ("seed=0",), "hash", 1, 10)])
    job = manifest.claim("0" * 16, lambda name: False)
    assert job is not None
    manifest.finish(job, None)
    assert main(["sweep", "größe = 1"]) == 0
    assert pasted(capsys.readouterr().out, "sweep") == [["rlmem", "sweep", "status", "größe = 1"]]
    assert main(["sweep", "status", "größe = 1"]) == 0


# --- failures


class Falls(GRU):
    """A memory that lacks numbers, or memory, once it learns."""

    def __init__(self, input_size: int, hidden_size: int = 4, what: str = "numbers"):
        super().__init__(input_size, hidden_size)
        self.what = what

    def forward(self, *arguments):
        y, state = super().forward(*arguments)
        if self.what == "memory":
            raise torch.OutOfMemoryError("tried to allocate 9 GB")
        return y * torch.nan, state


@pytest.mark.parametrize("what", ["numbers", "memory"])
def test_a_failure_is_said_once_and_kept_in_the_log(what, in_tmp, capsys):
    target = f"memory._target_={__name__}.Falls"
    lines = [line for line in SMALLEST if not line.startswith("memory")]
    assert main(["train", *lines, target, f"memory.what={what}", "run_dir=run"]) == 1
    output = capsys.readouterr()
    (line,) = [line for line in (output.out + output.err).splitlines() if "failed" in line]
    assert line.startswith("rlmem: failed: step ")
    assert line.removeprefix("rlmem: ") in (in_tmp / "run" / "log.txt").read_text().splitlines()


OUT_OF = {"algo=ppo": {"algo.rollout_slots"}, "algo=dqn": {"algo.batch_size", "algo.capacity"}, "algo=impala": set()}


@pytest.mark.parametrize("algo", OUT_OF)
def test_a_lack_of_memory_names_keys_that_the_run_has(algo):
    values = load([algo]).values
    with pytest.raises(Fault) as fault, as_faults(lambda: 3, values):
        raise MemoryError
    told = set(re.findall(r"[a-z]+\.[a-z_]+", str(fault.value).rpartition("e.g. a smaller ")[2]))
    assert OUT_OF[algo] | {"env.num_envs", "memory.hidden_size"} <= told <= set(SIZES)
    for key in told:
        section, _, name = key.partition(".")
        assert name in values[section], key


# --- names


def test_an_environment_by_id_is_named_by_it(in_tmp, capsys):
    small = [line for line in SMALLEST if not line.startswith("env=")]
    assert main(["train", "env=gym", "env.id=CartPole-v1", *small]) == 0
    assert "2 x gym (CartPole-v1): observation" in capsys.readouterr().out
    (run_dir,) = (in_tmp / "runs").glob("*/*")
    assert run_dir.name.endswith("-mlp-ppo-CartPole-v1-s0")


# --- options of one's own

MINE = "# A memory of mine\n_target_: rlmem.memory.gru.GRU\nhidden_size: 8  # how wide it is\n"


def own_folder(name: str) -> None:
    for group, text in (("memory", MINE), ("env", "# A task of mine\ndefaults: [_popgym]\nname: RepeatFirst\n")):
        Path(name, group).mkdir(parents=True)
        Path(name, group, "mine.yaml").write_text(text)


WAYS = {
    "./conf": ("conf", {}, []),
    "variable": ("own", {"RLMEM_SEARCHPATH": "own"}, []),
    "override": ("own", {}, ["hydra.searchpath=[file://own]"]),
}


@pytest.mark.parametrize("way", ["./conf", "override", pytest.param("variable", marks=pytest.mark.slow)])
def test_options_of_ones_own_are_listed_explained_and_chosen(way, in_tmp, monkeypatch, capsys):
    folder, variables, lines = WAYS[way]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    own_folder(folder)
    told_of = {
        ("list", "memory"): ["  mine", "A memory of mine", "  ffm *"],
        ("train", "--help", "memory=mine"): ["mine", "memory.hidden_size=8", "how wide it is"],
        ("config", "memory=mine", "env=mine"): [f"{folder}/memory/mine.yaml:3", "name: RepeatFirst"],
    }
    if way == "override":  # once: these compose as the others do, and take longer
        told_of |= {
            ("list", "env"): ["mine", "A task of mine", "repeat_previous *"],
            ("sweep", "--dry-run", "memory=mine,gru"): ["memory=mine"],
            ("train", "-m", "--dry-run", "memory=mine,gru"): ["0  memory=mine", "2 jobs"],
        }
    for arguments, facts in told_of.items():
        capsys.readouterr()
        assert main([*arguments, *lines]) == 0
        told = capsys.readouterr().out
        assert [fact for fact in facts if fact not in told] == [], arguments


def test_shipped_options_are_not_replaced(in_tmp):
    (in_tmp / "conf" / "memory").mkdir(parents=True)
    (in_tmp / "conf" / "memory" / "gru.yaml").write_text(MINE.replace("gru.GRU", "lstm.LSTM"))
    (in_tmp / "conf" / "config.yaml").write_text("seed: 7\n")
    values = load(["memory=gru"]).values
    assert (values["memory"]["_target_"], values["seed"]) == ("rlmem.memory.gru.GRU", 0)
    assert "A memory of mine" not in catalog()["memory"].values()


def test_the_shipped_folder_is_no_folder_of_ones_own(monkeypatch, capsys):
    monkeypatch.chdir(conf_dir().parent)
    assert main(["list", "memory"]) == 0
    assert capsys.readouterr().out.count("  ffm *") == 1
    assert load(["memory=gru"]).choices["memory"] == "gru"


def test_a_folder_that_is_not_there_is_refused_by_the_name_of_the_variable(in_tmp, monkeypatch, capsys):
    monkeypatch.setenv("RLMEM_SEARCHPATH", os.pathsep.join([".", "nowhere"]))
    assert refusal(capsys, "list").startswith("RLMEM_SEARCHPATH: no folder nowhere; ")
    assert refusal(capsys, "config").startswith("RLMEM_SEARCHPATH: no folder nowhere; ")


def test_stored_runs_read_no_options_of_the_folder_they_lie_in(in_tmp, monkeypatch):
    """A directory from somebody else may come with a ./conf of its own."""
    train(load([*SMALLEST, "run_dir=run"]))
    Path("conf/memory").mkdir(parents=True)
    Path("conf/memory/evil.yaml").write_text("defaults: [\n")
    monkeypatch.setattr("rlmem.config.compose.compose_base", lambda overrides: pytest.fail("composed"))
    assert main(["resume", "run", "total_steps=64"]) == 0
    assert main(["eval", "run", "--episodes", "1"]) == 0
