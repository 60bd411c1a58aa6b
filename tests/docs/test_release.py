"""What a release carries beside the code: the lock, the citation, the workflows. No network is asked."""

import re
import sys

import yaml
from helpers import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rlmem import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
AGAIN = "requirements.lock is out of date: make lock"


def declared() -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [found for found in map(Requirement, lines) if found.name != "rlmem"]


def locked() -> dict[str, set[str]]:
    """Package -> its versions; it has several where they depend on Python or the platform."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK, re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def test_the_lock_has_what_the_project_asks_for_and_nothing_else():
    asked = set()
    for entry in re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry
        if "rlmem (pyproject.toml)" in entry:
            asked.add(canonicalize_name(entry.partition("==")[0]))
    assert asked == {canonicalize_name(requirement.name) for requirement in declared()}, AGAIN


def test_the_locked_versions_are_those_that_the_project_allows():
    versions = locked()
    for requirement in declared():
        for version in versions[canonicalize_name(requirement.name)]:
            assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {AGAIN}"


def test_the_lock_holds_the_versions_that_are_tested_together():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    for requirement in map(Requirement, lines):
        (pin,) = requirement.specifier
        assert pin.version in locked().get(canonicalize_name(requirement.name), {pin.version}), (
            f"{requirement}: {AGAIN}"
        )


def test_the_lock_names_no_index():
    assert not re.search(r"https?:|^-|file:", LOCK, re.MULTILINE)


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__
    assert cited["repository-code"] == PROJECT["urls"]["Source"]
    assert cited["url"] == PROJECT["urls"]["Documentation"]
    assert [author["name"] for author in cited["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_the_workflow_tests_every_python_that_the_project_names():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if text.startswith("Programming Language")]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [version for version in named if "." in version]
