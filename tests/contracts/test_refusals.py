"""A mistake on the command line is one line with its key, what is accepted and an example; nothing is written.

tests/data/refusals.yaml has the command lines, and the words that each answer holds.
"""

import shlex
from pathlib import Path

import pytest
import yaml
from helpers import ROOT
from recordings import provide_recording

from rlmem.commands.cli import main

REFUSALS = yaml.safe_load((ROOT / "tests/data/refusals.yaml").read_text(encoding="utf-8"))
FILES = {
    "mine.yaml": "gird: {seed: [0, 1]}",
    "empty.yaml": "grid: {seed: []}",
    "paired.yaml": "pairs: [{seed: [0, 1], env: [parity, sym5]}]",
    "run/config.yaml": "",
}
"""What lies in the current folder."""


@pytest.mark.parametrize("line", REFUSALS)
def test_a_mistake_is_one_line_with_everything_needed_to_act(line, in_tmp, capsys):
    Path("run").mkdir()
    for name, text in FILES.items():
        Path(name).write_text(text)
    if "p.hdf5" in line:
        provide_recording()
    before = sorted(in_tmp.rglob("*"))
    assert main(shlex.split(line)) == 2
    (answer,) = capsys.readouterr().err.splitlines()
    assert answer.startswith("rlmem: error: ") and "use +" not in answer
    assert [word for word in REFUSALS[line] if word not in answer] == []
    assert sorted(in_tmp.rglob("*")) == before
