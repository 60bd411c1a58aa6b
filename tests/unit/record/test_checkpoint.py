"""Checkpoints: whole or not at all, and a run goes on from one exactly."""

import pytest
import torch

from rlmem.record.checkpoint import Checkpoints, read


def state_at(step: int, **more: object) -> dict[str, object]:
    return {"step": step, "agent": {}, "experiment": {}, **more}


def test_the_newest_are_kept_and_loaded(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (10, 20, 30):
        checkpoints.save(step, state_at(step, x=torch.full((3,), float(step))))
    assert [p.name for p in checkpoints.paths()] == ["step_000000000020.pt", "step_000000000030.pt"]
    path, state = checkpoints.load()
    assert path.name == "step_000000000030.pt"
    assert state["x"].tolist() == [30.0] * 3
    assert len(list(tmp_path.iterdir())) == 4, "leftovers"


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "no checksum"])
def test_a_damaged_newest_falls_back_with_a_warning(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (10, 20):
        path = checkpoints.save(step, state_at(step, x=torch.zeros(4096)))
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[:-7])
    elif damage == "flip":  # of a weight, which no format of a file notices
        at = len(content) // 2
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.with_suffix(".sha256").unlink()
    with pytest.warns(UserWarning, match="damaged"):
        assert checkpoints.load()[1]["step"] == 10


def test_a_write_that_fails_leaves_the_old_ones(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(10, state_at(10))

    def full_disk(state, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(20, state_at(20))
    monkeypatch.undo()
    assert checkpoints.load()[1] == state_at(10)


def test_loading_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    path = Checkpoints(tmp_path).save(1, {"evil": Evil()})
    with pytest.raises(Exception, match=r"(?i)weights.only|unsupported"):
        read(path)


def test_nothing_to_load_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no intact checkpoint"):
        Checkpoints(tmp_path / "none").load()
