"""docs is true: every memory is in its table with the numbers of the code, keys are described, and examples run."""

import inspect
import json
import re

import pytest
import torch
import yaml
from helpers import ROOT, memory_node, options
from pages import blocks

from benchmarks.memory import write_table
from rlmem.batching import Segment, Tape
from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.config.targets import annotation, build, locate, parameters
from rlmem.config.validate import coerce
from rlmem.conformance import facts
from rlmem.core.errors import UserError
from rlmem.scan import chosen_engine, native

BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
INPUT_SIZE = 128


def text_of(document: str) -> str:
    return (ROOT / "docs" / document).read_text(encoding="utf-8")


def table(heading: str, document: str = "memory.md") -> list[dict[str, str]]:
    """The rows of the first table of a document whose header begins with `heading`, by column."""
    lines = text_of(document).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    cells = lambda line: [cell.strip() for cell in line.strip("|").split(" | ")]  # noqa: E731
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append(dict(zip(cells(lines[at]), cells(line), strict=True)))
    return rows


MODELS = {row["option"].strip("`"): row for row in table("option")}


def test_the_table_has_a_row_for_every_memory():
    assert sorted(MODELS) == options("memory")


def test_state_and_parameters_are_those_of_the_code():
    for name, row in MODELS.items():
        memory = facts(build(memory_node(name), input_size=INPUT_SIZE))
        assert row["parameters"] == f"{memory['parameters']:,}", name
        stated = re.search(r"(?:^|= )([\d,]+)(?: \(|$)", row["state"])
        assert stated, row["state"]
        assert stated[1] == f"{memory['state']:,}", name


def test_every_environment_is_named():
    named = set(re.findall(r"`(\w+)`", text_of("environments.md").partition("## Without the rest")[0]))
    robots = {f"{robot}{kind}" for robot in ("ant", "half_cheetah", "hopper", "walker") for kind in ("_p", "_v")}
    assert set(options("env")) - robots <= named


def assignments(name: str) -> list[tuple[str, str]]:
    """`key=value`, and `key` = `value`, `value`, ..., of the last column."""
    text = MODELS[name]["published forms and departures"]
    pairs = re.findall(r"`(\w+)=([\w.]+)`", text)
    for key, values in re.findall(r"`(\w+)` = (`\w+`(?:, `\w+`)*)", text):
        pairs += [(key, value) for value in re.findall(r"`(\w+)`", values)]
    return pairs


def test_the_options_of_the_last_column_exist():
    for name in MODELS:
        memory = locate(memory_node(name)["_target_"])
        for key, value in assignments(name):
            known = json.loads(value) if re.fullmatch(r"true|false|null|[\d.]+", value) else value
            coerce(known, annotation(parameters(memory)[key], memory))


@pytest.mark.slow
def test_the_examples_of_the_library_run(tmp_path, monkeypatch):
    """The python blocks without a file name, document by document, one after another as in one session."""
    monkeypatch.chdir(tmp_path)
    for document in (
        "docs/memory.md",
        "docs/batching.md",
        "docs/environments.md",
        "docs/library.md",
        "docs/export.md",
        "docs/hidden-state.md",
        "docs/horizon.md",
        "docs/claim-to-verdict.md",
        "README.md",
        "docs/index.md",
    ):
        shown = [b for b in blocks(document) if b.language == "python" and not b.file and not b.skipped]
        assert shown
        session: dict = {}
        torch.manual_seed(0)
        for block in shown:
            text = block.text.replace("200_000", "1_000").replace("updates=400", "updates=1")
            exec(compile(text, document, "exec"), session)


def test_the_page_that_shows_ppo_runs(capsys):
    """Whether it learns what it says is measured by the slow test of the same page."""
    (block,) = [b for b in blocks("docs/one-file.md") if b.language == "python"]
    exec(compile(block.text.replace("200_000", "4_096"), "docs/one-file.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.startswith("4096 steps; greedy return ")


@pytest.mark.slow
def test_the_page_that_shows_ppo_learns(capsys):
    (block,) = [b for b in blocks("docs/one-file.md") if b.language == "python"]
    exec(compile(block.text, "docs/one-file.md", "exec"), {"__name__": "page"})
    assert float(capsys.readouterr().out.partition("greedy return ")[2].split()[0]) > 0.95


def test_the_refusals_shown_are_those_of_the_code(monkeypatch):
    shown = [b.text for b in blocks("docs/memory.md") if "engine=triton: " in b.text]
    monkeypatch.setattr(native, "missing", lambda: "needs a C++ compiler, and none is installed (c++, g++ or clang++)")
    for line, engine in zip(shown[0].splitlines(), ("native", "triton"), strict=True):
        with pytest.raises(UserError) as refusal:
            chosen_engine(engine, "cpu")
        assert line == f"rlmem: error: {refusal.value}"


def test_the_environment_variables_named_are_read():
    files = [path for folder in ("scan", "core") for path in (ROOT / "rlmem" / folder).glob("*.py")]
    source = "".join(path.read_text() for path in files)
    named = re.findall(r"^\| `([A-Z0-9_]+)(?:=\w+)?` \|", (ROOT / "docs" / "memory.md").read_text(), re.MULTILINE)
    assert len(named) == 5
    for name in named:
        assert f'"{name}"' in source


def test_the_measured_table_names_memories_that_exist():
    _, _, rest = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8").partition(BEGIN)
    measured = re.findall(r"^\| `(\w+)` \|", rest.partition(END)[0], re.MULTILINE)
    assert set(measured) <= MODELS.keys()


def test_the_measured_table_is_written_between_its_comments(tmp_path):
    document = tmp_path / "memory.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write_table(ROOT / "tests/data/measured.json", document)
    written = document.read_text()
    assert written.startswith("before\n")
    assert written.endswith(f"{END}\nafter\n")
    assert "| `ffm` | 0.25 | - | 200 | 2.00 | 3 |" in written
    assert "16 episodes of 1,024 slots, D = 128, H = 256; a processor, 2 threads" in written
    assert "- ffm, tape 1,024: skipped: why\n- gru: ValueError: why" in written
    assert "old" not in written


@pytest.mark.parametrize(("scheme", "heading"), [(Tape, "## Tape off-policy"), (Segment, "## Segment off-policy")])
def test_every_key_of_a_batching_scheme_has_a_figure_and_its_default(scheme, heading):
    section = text_of("batching.md").partition(f"{heading}\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\*\*`(\w+)`\*\* \((\w+)\): .+?\n\n```text\n", section, re.MULTILINE | re.DOTALL)
    defaults = {name: parameter.default for name, parameter in inspect.signature(scheme).parameters.items()}
    assert {name: yaml.safe_load(value) for name, value in described} == defaults


def test_the_keys_of_the_off_policy_algorithms_and_their_defaults_are_those_of_the_yamls():
    rows = table("key", "algorithms.md")
    for algo in ("dqn", "sac", "sacd", "td3"):
        node = load([f"algo={algo}", "env=repeat_first"]).values["algo"]
        stated = {row["key"].strip("`"): row[f"`{algo}`"] for row in rows}
        stated = {key: yaml.safe_load(value) for key, value in stated.items() if value != "-"}
        assert stated == {key: value for key, value in node.items() if key != "_target_"}, algo


@pytest.mark.parametrize("algo", ["dqn", "sac", "sacd", "td3"])
def test_every_key_of_an_algorithm_is_explained(algo):
    """Beyond the table of defaults, which says nothing about what a key does."""
    prose = text_of("batching.md") + text_of("algorithms.md").partition("| key |")[0]
    keys = load([f"algo={algo}", "env=repeat_first"]).values["algo"].keys() - {"_target_"}
    assert not [key for key in sorted(keys) if not re.search(rf"\b{key}\b", prose)]


@pytest.mark.slow
@pytest.mark.parametrize("document", ["batching.md", "algorithms.md"])
def test_the_settings_named_in_the_text_exist(document):
    """`key=value` of algorithms and batching schemes outside of commands, each with an option that has the key."""
    nodes = {}
    for group in ("algo", "batching"):
        for path in (conf_dir() / group).glob("[!_]*.yaml"):
            nodes[f"{group}={path.stem}"] = load([f"{group}={path.stem}"]).values[group]
    named = set(re.findall(r"`(?:\w+=\w+ )*((?:algo|batching)\.\w+)=([\w.]+)`", text_of(document)))
    assert named
    for key, value in sorted(named):
        group, _, name = key.partition(".")
        options = [option for option, node in nodes.items() if option.startswith(f"{group}=") and name in node]
        assert options, key
        load([options[0], f"{key}={value}"])


def test_the_keys_of_the_wandb_logger_are_explained_with_their_defaults():
    node = load(["logger=wandb"]).values["logger"]["wandb"]
    rows = table("`logger.wandb.`", "logging.md")
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row["`logger.wandb.`"])} == node.keys() - {"_target_"}
    stated = {row["`logger.wandb.`"].strip("`"): row["default"].partition(",")[0].strip("`") for row in rows}
    assert yaml.safe_load(stated["mode"]) == node["mode"]
    assert yaml.safe_load(stated["init_timeout"]) == node["init_timeout"]


@pytest.mark.parametrize("page", [*(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_exist(page):
    files = re.findall(
        r"`((?:rlmem|envs|benchmarks|tests|conf|docker)/[\w/.-]+\.\w+)`", (ROOT / page).read_text("utf-8")
    )
    assert not [file for file in files if not (ROOT / file).exists()]
