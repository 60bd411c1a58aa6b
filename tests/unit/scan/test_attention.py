"""The native kernel of attention to a window, against its definition slot by slot."""

import pytest
import torch

from rlmem.scan import attention, native

pytestmark = pytest.mark.skipif(bool(native.missing()), reason=str(native.missing()))


def plain(q, k, v, age, heads, bias=None):
    """The definition in the docstring of `attend`."""
    (B, T, H), S = q.shape, k.shape[1] - q.shape[1]
    split = lambda x: x.unflatten(-1, (heads, -1))  # noqa: E731
    rows = []
    for b in range(B):
        for t in range(T):
            reach = min(int(age[b, t]), S)
            seen = slice(S + t - reach, S + t + 1)
            scores = torch.einsum("hd,nhd->hn", split(q[b, t]), split(k[b, seen])) / (H // heads) ** 0.5
            if bias is not None:
                scores = scores + bias[b, :, t, S - reach :]
            rows.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), split(v[b, seen])).flatten())
    return torch.stack(rows).view(B, T, H)


def case(T, S, H=8, heads=2, B=2, starts=0.1, with_bias=False, seed=0):
    """q, k, v, the age and a bias or None."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    start = torch.rand(B, T, generator=rng) < starts
    age, last = torch.empty(B, T, dtype=torch.float64), torch.tensor([2.0, 100.0], dtype=torch.float64)[:B]
    for t in range(T):
        last = torch.where(start[:, t], 0, last + 1)
        age[:, t] = last
    bias = draw(B, heads, T, S + 1) if with_bias else None
    return draw(B, T, H), draw(B, S + T, H), draw(B, S + T, H), age, bias


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("form", "T", "S"),
    [*((attention.attend, *sizes) for sizes in ((1, 5), (7, 0), (9, 40), (70, 5))), (attention.in_chunks, 150, 40)],
)
def test_values_and_gradients_are_those_of_the_definition(form, T, S, with_bias):
    """Rows within one block of the kernel and across several, windows shorter and longer than a block, and rows of
    more than two chunks, as GTrXL reads them without the kernel."""
    q, k, v, age, bias = case(T, S, with_bias=with_bias)
    leaves = [x.requires_grad_() for x in (q, k, v, bias) if x is not None]
    ours, truth = (each(q, k, v, age, 2, bias) for each in (form, plain))
    torch.testing.assert_close(ours, truth, rtol=0, atol=1e-12)
    for of in zip(*(torch.autograd.grad(y.sin().sum(), leaves) for y in (ours, truth)), strict=True):
        torch.testing.assert_close(*of, rtol=0, atol=1e-12)


def test_single_precision_is_as_exact_as_its_digits():
    given = case(70, 40, with_bias=True)
    y = attention.attend(*(x.float() for x in given[:4]), 2, given[4].float())
    torch.testing.assert_close(y.double(), plain(*given[:4], 2, given[4]), rtol=0, atol=2e-6)


def test_two_threads_make_no_other_numbers():
    given, before = case(70, 40, B=2), torch.get_num_threads()
    alone = attention.attend(*given[:4], 2)
    torch.set_num_threads(2)
    try:
        torch.testing.assert_close(attention.attend(*given[:4], 2), alone, rtol=0, atol=1e-13)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("of", ["q", "k", "v", "y"])
def test_what_is_not_finite_stays_in_its_episode(of, bad):
    """Values and gradients of the episode before and after it, within one block of the kernel, are as without."""
    q, k, v, _, _ = case(24, 6, B=1)
    age = (torch.arange(24) % 8).double()[None]  # three episodes of eight slots
    dy = torch.ones_like(q)
    found = []
    for spoilt in (False, True):
        given = {"q": q.clone(), "k": k.clone(), "v": v.clone(), "y": dy.clone()}
        if spoilt:
            given["k"][0, 6 + 10, 1] = bad if of == "y" else k[0, 6 + 10, 1]  # for y: of slots that read NaN
            given[of][0, 10 + (6 if of in "kv" else 0), 1] = bad
        q_, k_, v_ = (given[name].requires_grad_() for name in "qkv")
        y = attention.attend(q_, k_, v_, age, 2)
        found.append([y, *torch.autograd.grad(y, [q_, k_, v_], given["y"])])
    clean, got = found
    assert got[0][:, 10].isnan().all()
    for ours, truth in zip(got, clean, strict=True):
        ahead = ours.shape[1] - 24  # slots before the row
        others = [t for t in range(ours.shape[1]) if not 8 <= t - ahead < 16]
        torch.testing.assert_close(ours[:, others], truth[:, others], rtol=0, atol=1e-12)


def test_shapes_that_do_not_fit_are_named():
    q, k, v, age, bias = case(5, 3, with_bias=True)
    for wrong in (
        (q, k[:, 1:], v, age, 2),
        (q, k, v, age[:, 1:], 2),
        (q, k, v, age, 3),
        (q, k, v, age, 2, bias[..., 1:]),
    ):
        with pytest.raises(ValueError, match=r"expected . heads in q, k, v, age and bias of shapes"):
            attention.attend(*wrong)
