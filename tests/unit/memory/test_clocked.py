"""Memories that are told the time: what they read, and that any memory can be one."""

from functools import partial
from math import cos, sin

import pytest
import torch
from helpers import make_memory

from rlmem.config.compose import load
from rlmem.evidence import catalog
from rlmem.memory.base import redraw
from rlmem.memory.clocked import Clocked
from rlmem.memory.ffm import FFM
from rlmem.memory.mlp import MLP
from rlmem.memory.shm import SHM
from rlmem.memory.stack import Stack

D, H = 6, 8


@pytest.mark.parametrize("mix", ["sigmoid", "clamped"])
def test_half_a_clock_is_mixed_into_the_input(mix):
    memory = Clocked(D, MLP, H, base=1024, mix=mix).double()
    x = torch.randn(1, 1, D, dtype=torch.float64).expand(1, 5, D)
    start = torch.tensor([[False, False, False, True, False]])
    y, after = memory(x, memory.initial_state(1) | {"age": torch.full((1,), 7.0, dtype=torch.float64)}, start)
    assert after["age"].tolist() == [2]
    for t, age in enumerate([7, 8, 9, 0, 1]):
        clock = torch.tensor([f(age / 1024 ** (i / D)) for i in (0, 2, 4) for f in (sin, cos)], dtype=x.dtype)
        torch.testing.assert_close(y[0, t], memory.layer.layers(0.5 * x[0, t] + 0.5 * clock))


@pytest.mark.parametrize(("mix", "off"), [("sigmoid", -1e9), ("clamped", -0.1)])
def test_the_clock_can_be_switched_off(mix, off):
    memory = Clocked(D, MLP, H, mix=mix).double()
    memory.load_symbols(memory.symbols() | {"w": torch.tensor(off, dtype=torch.float64)})
    x, start = torch.randn(2, 5, D, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.bool)
    y, _ = memory(x, memory.initial_state(2), start)
    assert torch.equal(y, memory.layer.layers(x))


def test_the_layer_is_as_wide_as_it_says():
    assert Clocked(D, partial(FFM, hidden_size=5), H).output_size == 5
    memory = make_memory("clocked", D, layer={"_target_": "rlmem.memory.shm.SHM", "memory_size": 3})
    assert isinstance(memory.layer, SHM)
    assert (memory.layer.k, memory.layer.input_size, memory.output_size) == (3, D, 16)


@pytest.mark.parametrize(("row", "option"), {"tcn": "tcn_popgym", "fart": "fart_popgym", "fwp": "fwp_popgym"}.items())
def test_the_memories_of_popgym_that_know_the_time_have_the_layers_of_its_others(row, option):
    """ffm/table4 writes them out, but for the denominator that was published."""
    experiment = catalog.find("ffm/table4")
    (cell,) = (cell for cell in experiment.at("paper").cells() if cell.name == f"{row}/autoencode easy")
    layer = load(cell.overrides).values["memory"]["layer"]
    plain = load([f"memory={option}"]).values["memory"]
    differing = {"hidden_size", "denominator", "engine"}
    assert layer["_target_"] == plain["_target_"]
    assert {k: plain[k] for k in layer if k not in differing} == {k: layer[k] for k in layer if k not in differing}
    assert plain.keys() - layer.keys() <= differing


def test_layers_are_redrawn():
    memory = Clocked(D, partial(Stack, layer=SHM))
    before = [layer.seed.item() for layer in memory.layer.layers]
    memory.redraw()
    redraw(torch.nn.ModuleDict({"one": memory, "the same": memory}))
    assert [layer.seed.item() for layer in memory.layer.layers] == [seed + 2 for seed in before]


def test_what_the_layer_breaks_is_broken():
    assert Clocked(D, partial(SHM, draw="fresh")).breaks == SHM(D, draw="fresh").breaks != {}
