"""The kernel of perceptrons against its plain twin, and which modules it reads."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from rlmem.scan import Linear, Perceptron, native, perceptron
from rlmem.scan.native import FEW, KERNEL_LEADS, LITTLE, constant_weights

pytestmark = pytest.mark.skipif(not KERNEL_LEADS or bool(native.missing()), reason="products are torch's here")
ROWS = [1, 17, 300, 2100]
"""Around the sizes of tiles and blocks; the last has more than one sum of gradients."""


def made(activation, last=False, sizes=(70, 50, 33, 4)):
    torch.manual_seed(0)
    layers = [layer for pair in pairwise(sizes) for layer in (Linear(*pair), activation())]
    return Perceptron(Perceptron(*layers[:4]), *layers[4 : None if last else -1])


def plain(model, x):
    """The same weights in torch's own modules."""
    for layer in perceptron._flat((model,)):
        x = nn.functional.linear(x, layer.weight, layer.bias) if isinstance(layer, Linear) else layer(x)
    return x


def by_kernel(model, x):
    return perceptron.perceptrons(x, [perceptron._layers((model,))])[0]


@pytest.fixture
def calls(monkeypatch):
    """The names of the kernels that were called."""
    names, call = [], perceptron._run
    monkeypatch.setattr(
        perceptron, "_run", lambda name, *args, **named: (names.append(name), call(name, *args, **named))
    )
    return names


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("activation", [nn.LeakyReLU, nn.ReLU, nn.Tanh])
def test_values_and_gradients_are_those_of_the_plain_twin(activation, last):
    model = made(activation, last).double()
    for rows in ROWS:
        x = torch.randn(rows, 70, dtype=torch.double, requires_grad=True)
        found, truth = by_kernel(model, x), plain(model, x)
        inputs, direction = [x, *model.parameters()], torch.randn_like(truth)
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)
        for ours, theirs in zip(
            torch.autograd.grad(found, inputs, direction), torch.autograd.grad(truth, inputs, direction), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("activation", [nn.LeakyReLU, nn.ReLU, nn.Tanh])
def test_so_they_are_in_single_precision(activation):
    model = made(activation)
    x = torch.randn(7, 300, 70, requires_grad=True)
    found, truth = by_kernel(model, x), plain(model, x)
    torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-5)
    inputs, direction = [x, *model.parameters()], torch.randn_like(truth)
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, direction), torch.autograd.grad(truth, inputs, direction), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_a_row_is_what_it_is_alone_and_layer_by_layer():
    """Not a bit differs between acting and learning."""
    model = made(nn.LeakyReLU, sizes=(70, 300, 33, 4))
    x = torch.randn(600, 70)
    together = by_kernel(model, x)
    with torch.no_grad(), constant_weights():
        assert torch.equal(by_kernel(model, x), together)
        assert torch.equal(nn.Sequential(*model)(x), together)
        for rows in (1, 2, 7, 64, 599):
            assert torch.equal(by_kernel(model, x[:rows]), together[:rows])


def test_several_that_read_the_same_add_up_their_gradients():
    one, other = made(nn.Tanh, sizes=(70, 50, 33, 4)).double(), made(nn.Tanh, True, (70, 20, 9, 1)).double()
    x = torch.randn(1100, 70, dtype=torch.double, requires_grad=True)
    inputs = [x, *one.parameters(), *other.parameters()]
    together = perceptron.through_each([(one[0], *one[1:]), (other,)], x)
    apart = plain(one, x), plain(other, x)
    for found, truth in zip(together, apart, strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)
    directions = [torch.randn_like(y) for y in apart]
    found, truth = (torch.autograd.grad(made, inputs, directions) for made in (together, apart))
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    with torch.no_grad(), other.register_forward_hook(lambda module, args, y: y + 1):  # then each by itself
        torch.testing.assert_close(perceptron.through_each([(one,), (other,)], x)[1], apart[1] + 1)


def test_threads_share_the_work_without_changing_it(monkeypatch):
    model, x = made(nn.Tanh), torch.randn(3000, 70, requires_grad=True)

    def with_threads(threads):
        monkeypatch.setattr(native, "threads_for", lambda work: threads)
        y = by_kernel(model, x)
        return y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])

    alone = with_threads(1)
    for threads in (2, 3, 7):
        assert all(map(torch.equal, with_threads(threads), alone))


def test_only_what_needs_a_gradient_gets_one():
    model, x = made(nn.ReLU), torch.randn(300, 70, requires_grad=True)
    everything = torch.autograd.grad(by_kernel(model, x).sum(), [x, *model.parameters()])
    (of_x,) = torch.autograd.grad(by_kernel(model, x).sum(), [x])
    of_weights = torch.autograd.grad(by_kernel(model, x.detach()).sum(), list(model.parameters()))
    assert all(map(torch.equal, everything, (of_x, *of_weights)))


def test_frozen_weights_get_none():
    model, x = made(nn.ReLU), torch.randn(300, 70, requires_grad=True)
    everything = torch.autograd.grad(by_kernel(model, x).sum(), [x, *model.parameters()])
    model[0][2].requires_grad_(False)
    learning = [p for p in model.parameters() if p.requires_grad]
    some = torch.autograd.grad(by_kernel(model, x).sum(), [x, *learning])
    assert all(map(torch.equal, some, [*everything[:3], *everything[5:]]))
    model.requires_grad_(False)
    assert torch.equal(torch.autograd.grad(by_kernel(model, x).sum(), x)[0], everything[0])


def test_weights_that_are_met_twice_are_not_counted_twice():
    torch.manual_seed(0)
    layer, x = Linear(6, 6).double(), torch.randn(40, 6, dtype=torch.double, requires_grad=True)
    model = Perceptron(layer, nn.Tanh(), layer, nn.Tanh())
    for create in (False, True):
        found = torch.autograd.grad(by_kernel(model, by_kernel(model, x)).sum(), [x, layer.weight], create_graph=create)
        truth = torch.autograd.grad(plain(model, plain(model, x)).sum() * 1.0, [x, layer.weight])
        for ours, theirs in zip(found, truth, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_what_it_returns_may_be_changed():
    model, x = made(nn.ReLU), torch.randn(300, 70, requires_grad=True)
    (doubled,) = torch.autograd.grad(by_kernel(model, x).mul_(2).sum(), x)
    assert torch.equal(doubled, torch.autograd.grad(2 * by_kernel(model, x).sum(), x)[0])


def test_compilers_see_torchs_own_operators_for_any_number_of_rows(calls):
    model, frames = made(nn.ReLU), []

    def backend(graph, inputs):
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for rows in (4, 64, 5000):
        x = torch.randn(rows, 70)
        torch.testing.assert_close(compiled(x), plain(model, x), rtol=1e-5, atol=1e-5)
    assert len(frames) == 1 and not calls


def test_it_can_be_differentiated_twice():
    model = made(nn.Tanh, sizes=(3, 4, 5, 2)).double()
    x = torch.randn(20, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, *weights: by_kernel(model, x), [x, *model.parameters()])


@pytest.mark.parametrize("activation", [nn.LeakyReLU, nn.ReLU, nn.Tanh])
def test_what_is_not_finite_stays_so(activation):
    model, x = made(activation, sizes=(2, 3, 3, 2)), torch.randn(40, 2)
    x[5, 1] = torch.nan
    y = by_kernel(model, x.requires_grad_())
    assert y[5].isnan().all() and torch.equal(y.isnan().any(-1), x.isnan().any(-1))
    assert torch.autograd.grad(y.sum(), [model[0][0].weight])[0].isnan().any()


def test_modules_that_it_reads(calls):
    x = torch.randn(LITTLE // 1000, 70)
    with torch.no_grad():
        for model in (made(nn.ReLU), made(nn.ReLU, last=True), nn.Sequential(made(nn.Tanh))):
            torch.testing.assert_close(perceptron.through((model,), x), plain(model, x), rtol=1e-5, atol=1e-5)
    assert calls == ["perceptron_forward"] * 3


class Other(Linear):
    """A layer of another kind."""

    def forward(self, input):
        return super().forward(input) + 1


OTHERS = {
    "a layer norm": lambda: Perceptron(Linear(70, 8), nn.LayerNorm(8), nn.ReLU(), Linear(8, 4)),
    "another slope": lambda: Perceptron(Linear(70, 8), nn.LeakyReLU(0.2), Linear(8, 4)),
    "two activations": lambda: Perceptron(Linear(70, 8), nn.ReLU(), Linear(8, 8), nn.Tanh()),
    "another layer": lambda: Perceptron(Other(70, 8), nn.ReLU(), Linear(8, 4)),
    "no bias": lambda: Perceptron(Linear(70, 8, bias=False), nn.ReLU(), Linear(8, 4)),
}


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_others_are_computed_by_themselves(calls, name):
    model, x = OTHERS[name](), torch.randn(10 * FEW, 70)
    found, expected = model(x), x
    assert not calls
    for module in model:
        expected = module(expected)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("where", [(), (0,), (0, 1), (1,)])
def test_hooks_see_what_they_wait_for(where):
    model, seen = made(nn.ReLU), []
    module = model
    for name in where:
        module = module[name]
    x = torch.randn(10 * FEW, 70)
    with torch.no_grad(), module.register_forward_hook(lambda module, args, y: seen.append(y)):
        y = model(x)
    assert len(seen) == 1
    torch.testing.assert_close(y, plain(model, x), rtol=1e-5, atol=1e-5)


def test_autocast_and_no_rows_are_torchs(calls):
    model = made(nn.ReLU)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.randn(10 * FEW, 70)).dtype == torch.bfloat16
    assert model(torch.randn(0, 70)).shape == (0, 4)
    assert not calls
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.randn(10 * FEW, 71))
