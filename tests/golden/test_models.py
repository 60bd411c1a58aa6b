"""Every recording of the papers' own models is reproduced: outputs, final states, gradients, published variants."""

from pathlib import Path

import golden_models  # noqa: F401
import pytest
import torch
from golden import ADAPTERS, FOLDER, Record, assert_gradients, assert_near, prepared, recordings, run, zeros

from rlmem.memory.base import Memory

FLOAT32 = {"forward": 1e-4, "gradient": 1e-3}


RECORDED = {
    "test_several_episodes_in_a_row_equal_the_recorded_ones": lambda r: ADAPTERS[r.meta["model"]].packed is not None,
    "test_the_published_option_is_the_published_code": lambda r: "pub.y" in r.arrays,
}
"""What a test needs of a record. That episodes in a row are those of each by itself is a property of `rlmem check`."""


def pytest_generate_tests(metafunc):
    if "record" in metafunc.fixturenames:
        folders = [FOLDER, *map(Path, metafunc.config.getoption("golden_memory"))]
        known = [r for folder in folders for r in recordings(folder) if r.meta.get("model") in ADAPTERS]
        records = [r for r in known if RECORDED.get(metafunc.function.__name__, lambda _: True)(r)]
        metafunc.parametrize("record", records, ids=lambda r: r.name)


def test_every_recording_is_read_by_some_test(pytestconfig):
    """By an adapter, or by the test named for it; a model nobody knows is a failure, not a skip."""
    elsewhere = {"linrec", "returns", "metrics", "init_tables"}
    for folder in [FOLDER, *map(Path, pytestconfig.getoption("golden_memory"))]:
        for record in recordings(folder):
            assert record.kind in ADAPTERS or record.kind in elsewhere, f"{record.name}: no adapter for {record.kind!r}"


def engines(memory: Memory) -> list[str]:
    return ["loop", "chunked", "native"] if memory.scanning() else [""]


@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=["float64", "float32"]
)
def test_our_model_is_the_recorded_one(record: Record, dtype):
    adapter = ADAPTERS[record.meta["model"]]
    memory = prepared(adapter.build, record, dtype)
    exact = dtype == torch.float64
    forward = adapter.forward_tolerance if exact else FLOAT32["forward"] * (10 if "shm_clamp" in record.name else 1)
    gradient = adapter.gradient_tolerance if exact else FLOAT32["gradient"]
    for engine in engines(memory):
        for part in memory.scanning():
            part.engine = engine
        y, final, gradients = run(memory, record, dtype)
        assert_near(y, record.array("y", dtype), forward, f"{engine} y")
        for name, truth in adapter.recorded(record.group("stateT", dtype)).items():
            assert_near(final[name], truth, forward, f"{engine} stateT.{name}")
        if exact or not adapter.has_kinks:
            assert_gradients(gradients, record.group("g", dtype), gradient, f"{engine} g", zeros(record, "g"))


def test_the_published_option_is_the_published_code(record: Record):
    adapter = ADAPTERS[record.meta["model"]]
    assert adapter.published, f"{record.name} has pub.y: which option reproduces it?"
    memory = prepared(adapter.published, record, torch.float64)
    y, _, gradients = run(memory, record, torch.float64)
    assert_near(y, record.array("pub.y"), adapter.forward_tolerance, "pub.y")
    assert_gradients(gradients, record.group("pub.g"), adapter.gradient_tolerance, "pub.g")


def test_several_episodes_in_a_row_equal_the_recorded_ones(record: Record):
    """Of models that have an option for where an episode begins."""
    adapter = ADAPTERS[record.meta["model"]]
    memory = prepared(adapter.packed, record, torch.float64)
    y, _, gradients = run(memory, record, torch.float64, "packed.start", fresh=True)
    assert_near(y, record.array("packed.y"), adapter.forward_tolerance, "packed.y")
    recorded, zero = record.group("packed.g"), zeros(record, "packed.g")
    assert_gradients(gradients, recorded, adapter.gradient_tolerance, "packed.g", zero)
