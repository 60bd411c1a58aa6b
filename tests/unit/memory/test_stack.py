"""Stacks: any memory as a layer, the width of layers, norms and skip connections."""

from functools import partial

import pytest
import torch
import yaml
from helpers import fast_only, make_memory, options
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from rlmem.config.paths import conf_dir
from rlmem.config.targets import build
from rlmem.core.errors import UserError
from rlmem.memory.ffm import FFM
from rlmem.memory.gru import GRU
from rlmem.memory.mlp import MLP
from rlmem.memory.stack import Stack
from rlmem.memory.xlstm import MLSTM, SLSTM

D, H = 6, 8


def stream(dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    return torch.randn(3, 20, D, dtype=dtype, generator=rng), torch.rand(3, 20, generator=rng) < 0.15


@pytest.mark.parametrize("wrapper", ["stack.Stack", "clocked.Clocked"])
@pytest.mark.parametrize("name", fast_only(("gru", "ffm", "gpt"), options("memory")))
def test_any_memory_can_be_a_layer_and_have_a_clock(name, wrapper):
    node = yaml.safe_load((conf_dir() / "memory" / f"{name}.yaml").read_text())
    torch.manual_seed(0)
    layer = {key: value for key, value in node.items() if key != "hidden_size"}
    whole = {"_target_": f"rlmem.memory.{wrapper}", "layer": layer, "hidden_size": H}
    memory = build(whole, input_size=D).double()
    inside = {"L0": memory.layers[0], "L1": memory.layers[1]} if wrapper == "stack.Stack" else {"layer": memory.layer}
    assert {one.output_size for one in inside.values()} == {memory.output_size} == {H}
    x, start = stream()
    state = memory.initial_state(3)
    y, final = memory(x, state, start)
    for t in range(20):
        y_t, state = memory.step(x[:, t], state, start[:, t])
        torch.testing.assert_close(y_t, y[:, t], rtol=0, atol=1e-9)
    for ours, truth in zip(tree_leaves(final), tree_leaves(state), strict=True):
        torch.testing.assert_close(ours, truth, rtol=0, atol=1e-9)
    weights = memory.symbols()
    for prefix, one in inside.items():
        named = {symbol.removeprefix(f"{prefix}.") for symbol in weights if symbol.startswith(f"{prefix}.")}
        assert named == one.symbols().keys()
    memory.load_symbols({symbol: w.clone() for symbol, w in weights.items()})


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
@pytest.mark.parametrize("residual", [True, False])
def test_norm_and_skip_connection_stand_where_they_are_said_to(norm, residual):
    torch.manual_seed(0)
    stack = Stack(D, partial(GRU, hidden_size=5), H, 2, residual, norm).double()
    x, start = stream()
    y, _ = stack(x, stack.initial_state(3), start)
    z = stack.W_in(x)
    for i, layer in enumerate(stack.layers):
        u = F.layer_norm(z, [H]) if norm == "pre" else z
        u, _ = layer(u, layer.initial_state(3), start)
        u = F.linear(u, stack.symbols()[f"W_out.{i}"], stack.symbols()[f"b_out.{i}"])
        z = z + u if residual else u
        z = F.layer_norm(z, [H]) if norm == "post" else z
    torch.testing.assert_close(y, F.layer_norm(z, [H]) if norm == "pre" else z)


def test_layers_are_as_wide_as_the_stack_unless_they_say_otherwise():
    as_wide = Stack(D, GRU, H)
    assert [layer.output_size for layer in as_wide.layers] == [H, H]
    assert not any("W_out" in symbol for symbol in as_wide.symbols())
    own = Stack(D, partial(GRU, hidden_size=5), H)
    assert [layer.output_size for layer in own.layers] == [5, 5]
    assert own.symbols()["W_out.1"].shape == (H, 5)
    plain = Stack(D, lambda width: MLP(width, 4), H)
    assert [layer.input_size for layer in plain.layers] == [H, H]
    deep = Stack(D, partial(Stack, layer=partial(FFM, trace_size=3), num_layers=3), H)
    assert "L1.L2.W_mix" in deep.symbols()
    assert deep.initial_state(2)["L1"]["L2"].shape == (2, 3, 4)


def test_a_yaml_sets_its_layers():
    stack = make_memory("stack", D, layer={"_target_": "rlmem.memory.ffm.FFM", "trace_size": 3}, num_layers=3)
    assert [type(layer) for layer in stack.layers] == [FFM] * 3
    assert [layer.state_shape for layer in stack.layers] == [(3, 4)] * 3
    assert [layer.output_size for layer in stack.layers] == [16] * 3


def test_every_layer_of_a_stack_has_weights_of_its_own():
    stack = Stack(D, GRU, H, num_layers=2)
    first, second = (layer.rnn.weight_hh_l0 for layer in stack.layers)
    assert not torch.equal(first, second)


def test_a_modern_block_is_its_equations():
    """A convolution over the slots of the episode, the memory, a gate, and a perceptron with one of its own."""
    torch.manual_seed(0)
    stack = Stack(H, GRU, H, 1, gate=True, feed_forward=5, conv_size=3).double()
    x, start = stream()
    x = torch.cat([x, x[..., :2]], -1)
    y, _ = stack(x, stack.initial_state(3), start)
    w, cell = stack.symbols(), stack.layers[0]

    def gated(name, e, a):
        g = {s.removeprefix(f"{name}."): p for s, p in w.items() if s.startswith(f"{name}.")}
        r = torch.sigmoid(a @ g["Wr"].T + e @ g["Ur"].T)
        z = torch.sigmoid(a @ g["Wz"].T + e @ g["Uz"].T - g["bias"])
        return (1 - z) * e + z * torch.tanh(a @ g["Wg"].T + (r * e) @ g["Ug"].T)

    u, v = F.layer_norm(x, [H]), torch.zeros_like(x)
    for b in range(3):
        first = 0
        for t in range(20):
            first = t if start[b, t] else first
            seen = range(max(first, t - 2), t + 1)
            v[b, t] = w["conv.0.b"] + sum(w["conv.0.w"][:, 2 - (t - s)] * u[b, s] for s in seen)
    read, _ = cell(F.silu(v), cell.initial_state(3), start)
    z = gated("gate.0", x, read)
    f = F.gelu(F.layer_norm(z, [H]) @ w["ff.0.W_1"].T + w["b_ff.0.W_1"]) @ w["ff.0.W_2"].T + w["b_ff.0.W_2"]
    torch.testing.assert_close(y, F.layer_norm(gated("ff.0.gate", z, f), [H]))


def test_two_kinds_of_layers_take_turns():
    stack = make_memory("xlstm", D, num_layers=3)
    assert [type(layer) for layer in stack.layers] == [MLSTM, SLSTM, MLSTM]
    with pytest.raises(UserError, match=r"residual=false.*give one"):
        Stack(D, GRU, H, residual=False, gate=True)
