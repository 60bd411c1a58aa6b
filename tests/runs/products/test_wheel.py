"""The wheel: everything travels inside, nothing else becomes a top-level name, and it runs from any directory.

It is built once, from the files that `.dockerignore` lets into the context of `docker build`, as the images do.
"""

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes

import pytest
from docker_context import let_in
from helpers import ROOT


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


@pytest.mark.slow
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
