"""The matrix memories: the chunkwise scans equal their loops, and what recordings leave open."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from rlmem.memory.linear_attention import LinearAttention
from rlmem.memory.xlstm import MLSTM
from rlmem.scan.outer import delta_scan, outer_scan

RULES = ["sum", "decayed", "delta", "gated_delta"]


def problem(seed: int, B: int, T: int, dtype=torch.float64, start_rate=0.1, k=3, v=4) -> dict[str, Tensor]:
    """Random inputs by name; keys of unit length, as the delta rule needs to be stable."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=rng).to(dtype)  # noqa: E731
    return {
        "q": draw(B, T, k),
        "k": F.normalize(draw(B, T, k), dim=-1),
        "v": draw(B, T, v),
        "gate": draw(B, T),
        "S0": draw(B, k, v),
        "start": torch.rand(B, T, generator=rng) < start_rate,
    }


def scan(rule: str, p: dict[str, Tensor], engine: str) -> tuple[Tensor, Tensor]:
    log_decay = F.logsigmoid(p["gate"]) if rule in ("decayed", "gated_delta") else None
    if "delta" in rule:
        return delta_scan(p["q"], p["k"], p["v"], torch.sigmoid(-p["gate"]), p["S0"], p["start"], log_decay, engine)
    return outer_scan(p["q"], p["k"], p["v"], p["S0"], p["start"], log_decay, engine)


def with_gradients(p: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x if name == "start" else x.clone().requires_grad_() for name, x in p.items()}


def values_and_gradients(rule: str, p: dict[str, Tensor], engine: str) -> list[Tensor]:
    p = with_gradients(p)
    y, S = scan(rule, p, engine)
    inputs = [x for name, x in p.items() if name != "start" and not (name == "gate" and rule == "sum")]
    return [y, S, *torch.autograd.grad((y * y.cos().detach()).sum() + (S * S.cos().detach()).sum(), inputs)]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rule=st.sampled_from(RULES),
    B=st.sampled_from([1, 3]),
    T=st.sampled_from([1, 2, 63, 64, 65, 200]),
    start_rate=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)
def test_chunkwise_equals_the_loop_in_values_and_gradients(seed, rule, B, T, start_rate):
    p = problem(seed, B, T, start_rate=start_rate)
    ours, truth = (values_and_gradients(rule, p, engine) for engine in ("chunked", "loop"))
    for a, b in zip(ours, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("T", [65, 500])
def test_float32_is_enough(rule, T):
    exact = problem(0, 3, T)
    single = {name: x if name == "start" else x.float() for name, x in exact.items()}
    ours, truth = values_and_gradients(rule, single, "chunked"), values_and_gradients(rule, exact, "loop")
    for a, b in zip(ours, truth, strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()


@pytest.mark.parametrize("engine", ["loop", "chunked"])
def test_the_rules_by_hand(engine):
    """Keys and values of width 1, q = 1, S0 = 8, the third slot a start."""
    one = torch.ones(1, 4, 1)
    k, v, half = torch.tensor([1.0, 2.0, 1.0, 2.0]).view(1, 4, 1), one, torch.full((1, 4), 0.5)
    S0, start = torch.full((1, 1, 1), 8.0), torch.tensor([[False, False, True, False]])
    y, S = outer_scan(one, k, v, S0, start, half.log(), engine)
    assert y.flatten().tolist() == [5.0, 4.5, 1.0, 2.5]  # 8/2 + 1, 5/2 + 2, 1, 1/2 + 2
    y, S = delta_scan(one, k, v, half, S0, start, engine=engine)
    assert y.flatten().tolist() == [4.5, -3.5, 0.5, 0.5]  # 8 + (1-8)/2, 4.5 + (1-9), 1/2, 1/2 + (1-1)
    assert S.item() == 0.5
    y, S = delta_scan(one, k, v, half, S0, start, half.log(), engine)
    assert y.flatten().tolist() == [2.5, -0.25, 0.5, 0.75]  # 4 + (1-4)/2, 1.25 + (1-2.5), 1/2, 1/4 + (1-1/2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [torch.nan, 1e200])
@pytest.mark.parametrize(("names", "at"), [("S0", 0), ("k v", 20), ("gate", 69), ("q", 40)])
def test_what_is_not_finite_spoils_the_rest_of_its_episode_and_nothing_else(rule, names, at, bad):
    """As in the loop; 1e200 overflows where two of it meet. Nor do gradients pass the start that follows."""
    clean = problem(2, 2, 130, start_rate=0.0)
    clean["start"][:, 70] = True
    spoilt = {key: x.clone() for key, x in clean.items()}
    for name in names.split():
        spoilt[name][:, at] = bad
    found, truth = (with_gradients(p) for p in (spoilt, clean))
    results = [scan(rule, p, "chunked") for p in (found, truth)]
    for y, S in results:
        (y[:, 70:].sum() + S.sum()).backward()
    for x, y in zip(results[0], results[1], strict=True):
        torch.testing.assert_close(x[:, 70:] if x is results[0][0] else x, y[:, 70:] if x is results[0][0] else y)
    for name in ("q", "k", "v") if rule == "sum" else ("q", "k", "v", "gate"):
        torch.testing.assert_close(found[name].grad[:, 70:], truth[name].grad[:, 70:], msg=name)
    loop, _ = scan(rule, spoilt, "loop")
    assert torch.equal(torch.isfinite(results[0][0]), torch.isfinite(loop))


@pytest.mark.parametrize("rule", RULES)
def test_a_state_per_slot_is_never_kept(rule):
    """What the backward pass keeps stays well below one S [k, v] per slot."""
    B, T, k = 1, 1024, 64
    p = with_gradients(problem(3, B, T, k=k, v=k))
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.update({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() // 8}) or x, lambda x: x
    ):
        loss = sum(x.sum() for x in scan(rule, p, "chunked"))
    assert sum(kept.values()) < 0.4 * B * T * k * k
    loss.backward()


@pytest.mark.recorded("mlstm", has="pub.y_memoryless")
@pytest.mark.parametrize("engine", ["loop", "chunked"])
def test_an_mlstm_without_recurrence_is_the_release_that_sees_one_slot(recording, engine):
    record = recording
    memory = MLSTM(record.meta["d"], record.meta["H"], record.meta["k"], recurrent=False, engine=engine).double()
    memory.load_symbols(record.group("w"))
    y, _ = memory(record.array("x"), memory.initial_state(record.meta["B"]), record.arrays["start"])
    torch.testing.assert_close(y, record.array("pub.y_memoryless"), rtol=1e-11, atol=1e-11)


def unstabilised_mlstm(memory: MLSTM, x: Tensor, start: Tensor) -> Tensor:
    """The equations as they stand, slot by slot."""
    C = n = torch.zeros(())
    outputs = []
    for x_t, start_t in zip(x.unbind(1), start.unbind(1), strict=True):
        keep = torch.sigmoid(memory.w_f(x_t)) * ~start_t[:, None]
        k, i = memory.W_k(x_t) / memory.key_size**0.5, memory.w_i(x_t).exp()
        C = keep[..., None] * C + (i * k)[:, :, None] * memory.W_v(x_t)[:, None]
        n = keep * n + i * k
        q = memory.W_q(x_t)
        h = torch.einsum("bkv,bk->bv", C, q) / (n * q).sum(-1, keepdim=True).abs().clamp(min=1)
        outputs.append(torch.sigmoid(memory.W_o(x_t)) * h)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("engine", ["loop", "chunked"])
def test_input_gates_beyond_float32_leave_the_mlstm_right(engine):
    """log i reaches 200 where float32's exp overflows above 88; float64 holds the plain equations."""
    torch.manual_seed(0)
    memory = MLSTM(5, 8, 8, engine=engine).double()
    with torch.no_grad():
        memory.w_i.weight *= 150
    x, start = torch.randn(3, 150, 5, dtype=torch.float64), torch.rand(3, 150) < 0.05
    assert memory.w_i(x).max() > 150
    truth = unstabilised_mlstm(memory, x, start)
    y, _ = memory(x, memory.initial_state(3), start)
    torch.testing.assert_close(y, truth, rtol=1e-9, atol=1e-9)
    memory.float()
    y, final = memory(x.float(), memory.initial_state(3), start)
    assert (y - truth).abs().median() < 1e-4
    assert all(torch.isfinite(s).all() for s in final.values())
    y.square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in memory.parameters())


def test_an_mlstm_is_born_remembering():
    f = torch.sigmoid(MLSTM(6).w_f.bias)
    assert f.item() == pytest.approx(0.9526, abs=1e-4)


def test_popgyms_attention_has_a_state_of_240_numbers():
    state = LinearAttention(6, key_size=15, value_size=15, form="popgym").initial_state(1)
    assert sum(s.numel() for s in state.values()) == 240
