"""The wheel: everything travels inside, nothing else becomes a top-level name, and it runs from any directory.

It is built once, from the files that `.dockerignore` lets into the context of `docker build`, as the images do.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UNSHIPPED = (".git", ".venv")
"""What is not looked through: large, and shut out by every pattern."""


def let_in(path: str, patterns: list[str]) -> bool:
    """Whether Docker sends a file: the last pattern that names it, or a folder around it, decides; `!` lets in."""
    parts, found = path.split("/"), True
    names = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    for line in patterns:
        pattern = line.removeprefix("!")
        assert re.fullmatch(r"[\w.*/-]+", pattern), f"{line}: a form that is not interpreted here"
        words = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(words, name) for name in names):
            found = line.startswith("!")
    return found


def patterns_of(file: Path) -> list[str]:
    return [line for line in map(str.strip, file.read_text().splitlines()) if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Path:
    """A copy of the tree that holds what `docker build` sends to the engine, and nothing else."""
    target, patterns = tmp_path_factory.mktemp("context"), patterns_of(ROOT / ".dockerignore")
    for folder, inner, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        inner[:] = [name for name in inner if (here / name).as_posix() not in UNSHIPPED]
        for name in files:
            if let_in((here / name).as_posix(), patterns):
                (target / here).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / here / name, target / here / name)
    return target


@pytest.fixture(scope="module")
def wheel(context, tmp_path_factory) -> Path:
    """Built from the sdist."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(context)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = target.glob("*.whl")
    return path


def test_patterns_are_read_as_docker_reads_them():
    patterns = ["*", "!a", "!b/*/*.csv", "**/*.pyc", "a/no"]
    for path, expected in {
        "x": False,
        "a/b/c": True,
        "a/x.pyc": False,
        "x.pyc": False,
        "a/no/c": False,
        "b/x.csv": False,
        "b/c/x.csv": True,
        "b/c/d/x.csv": False,
    }.items():
        assert let_in(path, patterns) == expected, path


def test_configs_and_experiments_travel_inside_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if not name.startswith("rlmem-")}
    assert {name.split("/")[0] for name in shipped} == {"rlmem", "rlmem_envs"}
    assert {f"rlmem/scan/{name}" for name in ("common.h", "linear.cpp", "cells.cpp")} <= set(shipped)
    assert {"rlmem/py.typed", "rlmem_envs/py.typed"} <= shipped
    for folder, kind in (("conf", "yaml"), *(("experiments", kind) for kind in ("yaml", "csv", "py"))):
        ours = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(f"*.{kind}")}
        assert ours
        assert {f"rlmem/{name}" for name in ours} <= shipped


def test_the_wheel_says_what_a_package_index_shows(wheel):
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    about = message_from_bytes(zipfile.ZipFile(wheel).read(name))
    assert {url.partition(",")[0] for url in about.get_all("Project-URL")} >= {"Homepage", "Source", "Changelog"}
    assert (about["Author"], about["Description-Content-Type"]) == ("The rlmem authors", "text/markdown")
    assert about.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_of_the_results_only_what_commands_read_travels(wheel):
    """The numbers that `rlmem reproduce` estimates costs from; no pictures, and no curves."""
    numbers = {path for path in (ROOT / "results").glob("*/*.csv") if not path.name.endswith(".curves.csv")}
    assert numbers
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("rlmem/results/")}
    assert shipped == {f"rlmem/{path.relative_to(ROOT).as_posix()}" for path in numbers}


INSTALLED = """
import sys
import rlmem
from rlmem.commands.cli import main
from rlmem.evidence import cost

print(rlmem.__file__)
print(len(cost._seconds_per_step()))
sys.exit(main(["list", "experiment"]) or main(["train", *sys.argv[1:]]))
"""


def test_the_installed_wheel_trains_from_the_root_directory(wheel, tmp_path):
    site, run_dir = tmp_path / "site", tmp_path / "run"
    zipfile.ZipFile(wheel).extractall(site)  # what pip makes of a wheel of pure Python
    small = ["total_steps=300", "env.num_envs=4", "algo.rollout_slots=32", "evaluation.episodes=2"]
    command = [sys.executable, "-c", INSTALLED, "memory=gru", *small, f"run_dir={run_dir}"]
    environment = os.environ | {"PYTHONPATH": str(site)}
    job = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=280)
    assert job.returncode == 0, job.stderr
    where, measured, *_ = job.stdout.splitlines()
    assert where.startswith(str(site))
    assert int(measured) > 100
    assert "memoroids/figure4" in job.stdout
    assert "done: 300 steps" in job.stdout
    assert (run_dir / "metrics.jsonl").exists()
