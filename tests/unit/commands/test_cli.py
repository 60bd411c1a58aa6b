"""The command line as a user meets it: help, exit codes, one line per mistake, JSON, several jobs."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import helpers
import pytest
import torch

import rlmem
import rlmem.commands.cli
from rlmem import conformance
from rlmem.commands.cli import VERBS, main
from rlmem.config.paths import conf_dir

ROOT = conf_dir().parent
TINY = [*helpers.TINY, "memory.hidden_size=8"]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], [], ["trian", "-h"]])
def test_help_names_every_command(arguments, capsys):
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert [verb for verb in VERBS if f"\n  {verb} " not in text] == []


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["train", "--help"]])
def test_help_and_list_answer_fast_and_without_torch_or_hydra(arguments):
    code = """
import sys
from rlmem.commands.cli import main
assert main(sys.argv[1:]) == 0
assert not {"torch", "hydra", "omegaconf", "pydantic"} & set(sys.modules)
"""
    started = time.perf_counter()
    done = run(code, *arguments)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - started < 2.0  # 0.1-0.2 s on an idle machine


def test_a_wrong_name_is_refused_without_loading_torch():
    code = "import sys; from rlmem.commands.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    done = run(code, "train", "memroy=ffm", "algo.lrr=1")
    assert done.stdout.split() == ["2", "False"]
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself_with_examples_whatever_else_is_given(verb, capsys):
    assert main([verb, "--no-such-flag", "oops=1", "-h"]) == 0
    text = capsys.readouterr().out
    assert f"usage: rlmem {verb}" in text
    assert f"examples:\n  rlmem {verb}" in text


def test_train_help_lists_groups_keys_and_the_keys_of_the_options_named(capsys):
    assert main(["train", "memory=ffm", "env=repeat_first", "--help"]) == 0
    text = capsys.readouterr().out
    facts = ("ffm, ", "total_steps=", "root of every random stream", "memory.trace_size=", "env.level=easy")
    assert [fact for fact in facts if fact not in text] == []


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rlmem {rlmem.__version__}\n"


def test_debug_shows_the_trace_as_well(capsys):
    assert main(["train", "memroy=ffm", "--debug"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.splitlines()[-1].startswith("rlmem: error: memroy=ffm")


def test_list_shows_what_is_named(capsys):
    """Names in groups, several groups, and the items of a paper or single ones."""
    assert main(["list", "memory", "ffm", "gru", "experiment", "shm", "ffm/table4", "batching", "--json"]) == 0
    found = {group: [row["name"] for row in rows] for group, rows in json.loads(capsys.readouterr().out).items()}
    assert found["memory"] == ["ffm", "gru"] and {"tape", "segment"} <= {*found["batching"]}
    assert found["experiment"][0] == "ffm/table4"
    assert {name.partition("/")[0] for name in found["experiment"][1:]} == {"shm"}
    assert main(["list", "experiment", "shm/figure2"]) == 0
    assert "shm/figure2: " in (text := capsys.readouterr().out) and "shm/figure1" not in text


@pytest.mark.parametrize(
    ("named", "expected", "other"),
    [
        (["env", "repeat_first"], "repeat_first", "two_step_cue"),
        (["experiment", "shm"], "shm/figure2", "ffm/figure3"),
    ],
)
def test_list_shows_what_is_named_in_every_form(capsys, named, expected, other):
    """As text, as JSON (a list by its group, but experiments or claims alone are the list) and as Markdown."""
    of_papers = named[0] == "experiment"
    for form in ([], ["--json"], ["--markdown"]):
        status = main(["list", *named, *form])
        out, error = capsys.readouterr()
        if form == ["--markdown"] and not of_papers:
            assert status == 2 and "is for claims or experiments alone" in error
            continue
        assert status == 0 and expected in out and other not in out
        if form == ["--json"]:
            assert of_papers == isinstance(json.loads(out), list)
    assert main(["list", *named, "memory", "gru", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == [named[0], "memory"]


def test_a_name_without_its_group_is_shown_with_it(capsys):
    assert main(["list", "gru"]) == 2
    assert "gru: no such group" in (error := capsys.readouterr().err) and "e.g. rlmem list memory gru" in error


def test_list_as_json(capsys):
    assert main(["list", "memory", "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out).items()
    assert group[0] == "memory"
    assert {"name": "gru", "description": "Gated Recurrent Unit (Cho et al. 2014)"} in group[1]
    assert main(["list", "--json"]) == 0
    assert all(row["description"] for rows in json.loads(capsys.readouterr().out).values() for row in rows)


def test_config_shows_where_values_come_from(capsys):
    assert main(["config", "memory=gru", "algo.lr=1e-3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["lr:", "0.001", "#", "command", "line"] for line in lines)
    assert any("# conf/memory/gru.yaml:" in line for line in lines)
    assert main(["config", "memory=gru", "algo.lr=1e-3", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["algo.lr"] == {"value": 0.001, "source": "command line"}


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dry-run", *TINY]) == 0
    assert "128 steps" in capsys.readouterr().out
    assert main(["train", "-m", "seed=0,1", "--dry-run", *TINY]) == 0
    assert capsys.readouterr().out.count("total_steps=128") == 2
    assert list(tmp_path.iterdir()) == []


def test_interruption_is_one_line(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(rlmem.commands.cli, "_dispatch", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "rlmem: interrupted\n"


def test_four_jobs_are_four_runs_and_nothing_else_appears(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-m", "memory=mlp,gru", "seed=0,1", *TINY]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    written = {path.name for path in (tmp_path / "runs" / "multirun").rglob("*") if path.is_file()}
    assert written == {"multirun.yaml"}
    assert len(list(tmp_path.glob("runs/*/*/metrics.jsonl"))) == 4
    assert "[HYDRA]" not in capsys.readouterr().out


def test_train_eval_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "memory=gru", "run_dir=here", *TINY]) == 0
    assert main(["resume", "here", "total_steps=256"]) == 0
    capsys.readouterr()
    assert main(["eval", "here", "--episodes", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["step"], result["episodes"]) == (256, 3)
    assert main(["eval", "--episodes", "3", "here", "env.max_episode_steps=5"]) == 0
    assert "greedy" in capsys.readouterr().out


LEAKY = """
import torch
from torch import nn
from rlmem.memory import RecurrentCell
from rlmem.core.types import PositiveInt

class Leaky(RecurrentCell):
    def __init__(self, input_size: int, width: PositiveInt = 5):
        super().__init__()
        self.input_size, self.output_size = input_size, width
        self.W = nn.Linear(input_size, width)

    def initial_state(self, batch_size):
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def cell(self, x, h):
        h = 0.9 * h + torch.tanh(self.W(x))
        return h, h

class Stale(Leaky):
    def step(self, x, state, start):
        y, h = super().step(x, state, start)
        self.first = getattr(self, "first", self.W.bias.detach().clone())
        return y + self.first - self.W.bias, h

class Published(Stale):
    breaks = {"parameters_take_effect": "acting keeps its first bias"}
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "leaky_for_check.py").write_text(LEAKY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "memory=leaky_for_check."


def test_check_measures_every_property_of_a_memory(capsys):
    assert main(["check", "memory=ffm", "memory.hidden_size=8", "memory.engine=chunked"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("memory=ffm: rlmem.memory.ffm.FFM, ")
    assert head.endswith("parameters, state of 256 numbers, chunked scan")
    assert len(lines) == 16
    assert all("<=" in line and "  PASS  " in line for line in lines)


@pytest.fixture
def short_rows(monkeypatch) -> None:
    """The longest gradients are those of 300 slots; a memory that is stepped in Python takes seconds for 16,384."""
    monkeypatch.setattr(conformance, "results", partial(conformance.results, long=(300,)))


def test_check_measures_a_class_of_your_own(own_module, short_rows, capsys):
    assert main(["check", f"{own_module}Leaky", "memory.width=7", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["memory"], report["state"], report["ok"]) == ("leaky_for_check.Leaky", 7, True)
    assert main(["train", "--dry-run", f"{own_module}Leaky", *TINY[:-1]]) == 0
    assert "leaky_for_check.Leaky: " in capsys.readouterr().out


def test_check_fails_a_memory_that_breaks_the_contract_unless_that_is_declared(own_module, short_rows, capsys):
    assert main(["check", f"{own_module}Stale"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "FAIL" in line]
    assert line.startswith("parameters_take_effect ")
    assert main(["check", f"{own_module}Published"]) == 0
    assert "FAIL (published: acting keeps its first bias)" in capsys.readouterr().out


def test_a_mistyped_key_of_a_class_of_your_own_is_held_to_its_constructor(own_module, capsys):
    assert main(["check", f"{own_module}Leaky", "memory.widht=7"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "did you mean `memory.width`? accepted: width" in line


MISTAKEN = """
from torch import nn
from rlmem.memory import LinearRecurrence, RecurrentCell

class Whole(RecurrentCell):
    def __init__(self, input_size: int, width: int = 5):
        super().__init__()
        self.input_size, self.output_size = input_size, width

    def initial_state(self, batch_size):
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def cell(self, x, h):
        return h, h

class Abstract(RecurrentCell):
    def __init__(self, input_size: int):
        super().__init__()

class Fixed(Whole):
    def __init__(self, width: int = 5):
        super().__init__(6, width)

class Keywords(Whole):
    def __init__(self, input_size: int, **kw):
        super().__init__(input_size, **kw)

class Sizeless(Whole):
    def __init__(self, input_size: int):
        nn.Module.__init__(self)

class Unready(Whole):
    def __init__(self, input_size: int):
        self.W = nn.Linear(input_size, 5)

class Shapeless(LinearRecurrence):
    def __init__(self, input_size: int):
        super().__init__()
        self.input_size = self.output_size = input_size
        self.W = nn.Linear(input_size, input_size)

    def gates(self, p):
        return self.W(p), p

    def read(self, h, p):
        return h

class Plain:
    def __init__(self, input_size: int):
        pass
"""


@pytest.fixture
def mistaken(tmp_path, monkeypatch):
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    (tmp_path / "mistyped.py").write_text("import torch\ndef f(:\n")
    (tmp_path / "nameless.py").write_text("\nwidth = Positive\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    "verb",
    [["check"], pytest.param(["train", "--dry-run", "env=repeat_first", "env.num_envs=2"], marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["memory._target_=mistaken.Abstract"], ["mistaken.Abstract is abstract", "define cell"]),
        (["memory._target_=mistaken.Fixed"], ["mistaken.Fixed does not take `input_size`"]),
        (["memory._target_=mistaken.Keywords", "memory.widht=3"], ["Keywords cannot be built (TypeError: ", "'widht'"]),
        (["memory._target_=mistaken.Sizeless"], ["mistaken.Sizeless does not set input_size and output_size"]),
        (["memory._target_=mistaken.Unready"], ["Unready cannot be built (AttributeError: ", "Module.__init__()"]),
        (["memory._target_=mistaken.Shapeless"], ["Shapeless fails in initial_state(1)", "'state_shape'"]),
        (["memory._target_=mistaken.Plain"], ["mistaken.Plain gives no rlmem.memory.base.Memory", "derive it from"]),
        (["memory._target_=mistyped.Thing"], ["mistyped.py:2: SyntaxError: "]),
        (["memory._target_=nameless.Thing"], ["nameless.py:2: NameError: name 'Positive' is not defined"]),
        (["memory=stack", "memory.layer._target_=mistaken.Abstract"], ["memory.layer._target_=", "is abstract"]),
        (["memory=stack", "memory.layer._target_=mistaken.Fixed"], ["memory.layer._target_=", "`input_size`"]),
        (["memory=stack", "memory.layer._target_=mistaken.Sizeless"], ["memory=stack: ", "'output_size'"]),
        (["memory=ffm", "memory.engine=triton", "device=cpu"], ["engine=triton: does not run on a CPU device"]),
    ],
)
def test_a_mistaken_class_of_your_own_is_one_line_and_the_same_for_check_and_train(
    verb, arguments, facts, mistaken, capsys
):
    assert main([*verb, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert [fact for fact in facts if fact not in line] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_check_measures_on_the_device_asked_for(capsys):
    assert main(["check", "memory=ffm", "device=cuda"]) == 2
    assert "device=cuda: no CUDA device" in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_check_measures_an_engine_of_the_gpu(capsys):
    assert main(["check", "memory=ffm", "memory.hidden_size=8", "memory.engine=triton", "device=cuda"]) == 0
    assert "triton scan" in capsys.readouterr().out


def test_a_shell_completes_commands_options_and_directories(in_tmp, capsys):
    assert main(["--completion", "bash"]) == 0
    Path("completion.bash").write_text(capsys.readouterr().out)
    Path("a_run").mkdir()

    def completed(*words):
        line = " ".join(words)
        ask = f"COMP_WORDS=({line}) COMP_CWORD={len(words) - 1} COMP_LINE='{line}' COMP_POINT={len(line)}"
        script = f"source completion.bash; {ask}; _shtab_rlmem; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert completed("rlmem", "repr") == ["reproduce"]
    assert completed("rlmem", "train", "memory=ff") == ["memory=ffm"]
    assert completed("rlmem", "eval", "--ep") == ["--episodes"]
    assert completed("rlmem", "eval", "a_r") == ["a_run"]
    assert main(["config", "algo.lr=0.001"]) == 0  # in the same process
    capsys.readouterr()
    assert main(["--completion", "bsh"]) == 2
    assert "did you mean `bash`" in capsys.readouterr().err


def test_a_current_folder_that_was_deleted_is_one_line(in_tmp, capsys):
    (in_tmp / "gone").mkdir()
    os.chdir(in_tmp / "gone")
    (in_tmp / "gone").rmdir()
    for arguments in (["list", "env"], ["report", "runs"], ["eval", "run"], ["train"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith("rlmem: error: the current folder cannot be used (")


@pytest.mark.parametrize("verb", [[], ["list"], ["eval"], ["train"], ["report"], ["dataset"]])
def test_what_is_long_is_not_repeated_whole(capsys, verb):
    for text in ("x" * 5000, "x " * 2500, "\n" * 5000):
        assert main([*verb, text]) == 2
        said = capsys.readouterr().err
        assert len(said) < 3200 and said.count("\n") == 1
