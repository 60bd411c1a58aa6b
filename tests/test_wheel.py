"""The wheel: everything travels inside, nothing else becomes a top-level name, and it runs from any directory."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = target.glob("*.whl")
    return path


def test_configs_and_experiments_travel_inside_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if not name.startswith("rlmem-")}
    assert {name.split("/")[0] for name in shipped} == {"rlmem", "rlmem_envs"}
    assert "rlmem/scan/kernels.cpp" in shipped
    for folder, kind in (("conf", "yaml"), ("experiments", "yaml"), ("experiments", "csv"), ("results", "csv")):
        ours = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(f"*.{kind}")}
        assert ours
        assert {f"rlmem/{name}" for name in ours} <= shipped


def test_the_installed_wheel_trains_from_the_root_directory(wheel, tmp_path):
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *install], check=True)
    environment = os.environ | {"PYTHONPATH": str(site)}

    def run(*command: str) -> str:
        job = subprocess.run([sys.executable, *command], cwd="/", env=environment, capture_output=True, text=True)
        assert job.returncode == 0, job.stderr
        return job.stdout

    assert run("-c", "import rlmem; print(rlmem.__file__)").startswith(str(site))
    assert "memoroids/figure4" in run("-m", "rlmem", "list", "experiment")
    run_dir = tmp_path / "run"
    small = ["total_steps=300", "env.num_envs=4", "algo.rollout_slots=32", "evaluation.episodes=2"]
    out = run("-m", "rlmem", "train", "memory=gru", *small, f"run_dir={run_dir}")
    assert "done: 300 steps" in out
    assert (run_dir / "metrics.jsonl").exists()
