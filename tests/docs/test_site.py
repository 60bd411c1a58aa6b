"""The site: every option, command and metric has its facts on a generated page, and a broken link fails the build."""

import posixpath
import re
from importlib import import_module

import pytest
from helpers import ROOT, memory_node, options

from rlmem.commands.cli import VERBS
from rlmem.commands.toolkit import Parser
from rlmem.config.catalog import catalog, option_keys
from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.config.targets import locate
from rlmem.evidence.metrics import METRICS as OF_TABLES
from rlmem.record.metrics import METRICS

SITE = ROOT / "docs" / "site"
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]+)[^)]*\)")


@pytest.fixture(scope="module")
def pages() -> dict:
    """Every generated page by its place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SITE))
        return import_module("reference").pages()


@pytest.mark.slow
def test_every_option_has_its_keys_on_a_page(pages):
    for group, names in catalog().items():
        for name in names if group != "experiment" else ():
            own = f"reference/{group}/{name}.md"
            text = pages[own if group in ("memory", "env", "algo") else f"reference/config/{group}.md"].text
            keys = {key.partition("=")[0] for key in option_keys(group, conf_dir() / group / f"{name}.yaml")}
            assert [key for key in sorted(keys) if f"| `{key}` |" not in text] == [], name
            assert f"{group}={name}" in text


@pytest.mark.slow
def test_every_group_is_listed_with_the_keys_of_none(pages):
    text = pages["reference/config/index.md"].text
    assert [group for group in catalog() if f"[`{group}`](" not in text] == []
    items = pages["reference/config/experiment.md"].text
    assert [name for name in catalog()["experiment"] if f"[`{name}`]" not in items] == []


@pytest.mark.slow
def test_a_memory_has_its_equation_state_cost_source_and_a_command(pages):
    for name in options("memory"):
        page = pages[f"reference/memory/{name}.md"]
        cls = locate(memory_node(name)["_target_"])
        equations = [line.strip() for line in (cls.__doc__ or "").splitlines() if re.match(r"        \S.* = ", line)]
        assert [line for line in equations if line not in page.text] == []
        assert f"rlmem train memory={name}" in page.text and "numbers of the state, per row" in page.text
        assert (ROOT / page.source).is_file()


@pytest.mark.slow
def test_an_environment_has_its_rules_levels_scores_and_a_picture(pages):
    cards = pages["reference/env/repeat_previous.md"]
    assert "| `hard` |" in cards.text and "`num_decks`" in cards.text
    drawn = [page for page in pages.values() if page.pictures]
    assert len(drawn) > 5
    for page in drawn:
        assert all(f"({name})" in page.text and image.startswith(b"\x89PNG") for name, image in page.pictures.items())
    for name in options("env"):
        assert "## Rules" in pages[f"reference/env/{name}.md"].text, name


@pytest.mark.slow
@pytest.mark.parametrize("name", options("algo"))
def test_the_command_on_the_page_of_an_algorithm_is_a_run(pages, name):
    (command,) = re.findall(rf"^rlmem train (algo={name} .*)$", pages[f"reference/algo/{name}.md"].text, re.MULTILINE)
    assert load(command.split()).choices["algo"] == name


@pytest.mark.slow
def test_a_command_has_every_flag(pages):
    for verb in VERBS:
        text = pages[f"reference/commands/{verb}.md"].text
        for action in Parser(verb)._actions:
            names = action.option_strings or [str(action.metavar or action.dest)]
            assert [name for name in names if f"`{name}" not in text] == [], verb


@pytest.mark.slow
def test_every_metric_is_explained(pages):
    text = pages["reference/metrics.md"].text
    assert [name for name in (*METRICS, *OF_TABLES) if f"| `{name}` |" not in text] == []


@pytest.mark.slow
def test_generated_pages_link_to_pages(pages):
    known = {*pages, *(path.name for path in (ROOT / "docs").glob("*.md")), "benchmarks.md", "contributing.md"}
    known |= {posixpath.join(posixpath.dirname(place), name) for place, page in pages.items() for name in page.pictures}
    known |= {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/notebooks").iterdir()}
    for place, page in pages.items():
        targets = {
            posixpath.normpath(posixpath.join(posixpath.dirname(place), link)) for link in LINK.findall(page.text)
        }
        assert targets <= known, place


def test_links_out_of_the_site_go_to_the_repository(monkeypatch):
    monkeypatch.syspath_prepend(str(SITE))
    adapted = import_module("documents").for_the_site
    code = "```sh\n[e](../Makefile)\n```\n"
    text = "[a](memory.md#x) [b](../CONTRIBUTING.md) [c](../tests/docs/test_docs.py) [d](../nowhere.md)"
    here = "[a](memory.md#x) [b](contributing.md) [c](https://github.com/rlmem/rlmem/blob/main/tests/docs/test_docs.py)"
    assert adapted(f"{text}\n{code}", "docs/design.md") == f"{here} [d](../nowhere.md)\n{code}"
    assert adapted("[a](docs/design.md#x) [b](results)", "RESULTS.md").startswith("[a](design.md#x) [b](https://")
    shown = "<!-- not run: why -->\n```python leaky.py\nx\n```\n"
    assert adapted(shown, "CONTRIBUTING.md") == '```python title="leaky.py"\nx\n```\n'
    assert adapted("A sentence. <!-- result: a/b:\nx > y --> Another.", "docs/memory.md") == "A sentence. Another."


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](index.md#nowhere)", "![a](nowhere.png)", None])
def test_a_broken_link_fails_the_build(tmp_path, link):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n{link or '[a](index.md#here)'}\n")
    small = {"nav": ["index.md"], "hooks": [], "plugins": [], "extra_css": [], "theme": {"name": "mkdocs"}}
    folders = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site")}
    config = load_config(str(SITE / "mkdocs.yml"), strict=True, **small, **folders)
    if link is None:
        build(config)
        assert 'id="here"' in (tmp_path / "site" / "index.html").read_text()
    else:
        with pytest.raises(Abort, match="strict mode"):
            build(config)
