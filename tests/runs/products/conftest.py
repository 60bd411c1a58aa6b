"""The wheel, built once from what Docker sends."""

import subprocess
import sys
from pathlib import Path

import pytest
from docker_context import copy_context


@pytest.fixture(scope="session")
def context(tmp_path_factory) -> Path:
    """A copy of the tree that holds what `docker build` sends to the engine, and nothing else."""
    return copy_context(tmp_path_factory.mktemp("context"))


@pytest.fixture(scope="session")
def wheel(context, tmp_path_factory) -> Path:
    """Built from the sdist."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(context)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = target.glob("*.whl")
    return path
