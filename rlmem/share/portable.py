"""The acting step of an agent with named inputs and outputs, and as a graph in operators that ONNX has."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten

from rlmem.agents.actor_critic import Agent
from rlmem.core.errors import UserError
from rlmem.core.spaces import in_env, readable_type
from rlmem.core.types import Inputs
from rlmem.run.trained import TrainedAgent

FIXED = ("obs", "start", "reward", "state_prev_action")
"""The inputs before the memory's: the last is the action before, as the policy gives it, a part of the state."""


class ActingStep(nn.Module):
    """One slot of N environments, read and acted in greedily.

        action, scores, *state' = step(obs, start, reward, *state)

    obs: [N, ...], observations in the type of their space
    start: [N] bool, where an episode begins: what the state holds is forgotten, so that any numbers may be there
    reward: [N] float, what the action before has earned
    state: tensors [N, ...]; of complex states [N, ..., 2], real and imaginary parts
    action: [N, ...], as the environment takes it
    scores: [N, ...], see `Agent.scores`

    agent: the trained agent, of which a copy is made
    names: of the parts of the state
    inputs, outputs: all names in their order; a part of the state that is returned is called `next_` and its name
    """

    def __init__(self, agent: TrainedAgent):
        super().__init__()
        self.network: Agent = deepcopy(agent.network).cpu().eval()
        self.observation_space, self.action_space = agent.observation_space, agent.action_space
        self.obs_dtype = torch.from_numpy(np.zeros(0, readable_type(agent.observation_space))).dtype
        memory = self.network.trunks.actor.memory
        for part in memory.scanning():
            part.engine = "loop"  # of torch's operators alone; one slot is one step
        leaves, self.form = tree_flatten_with_path(memory.initial_state(2))
        self.dtypes = [leaf.dtype for _, leaf in leaves]
        self.names = [FIXED[-1], *("_".join(["state", *map(_word, path)]) for path, _ in leaves)]
        self.inputs = [*FIXED[:-1], *self.names]
        self.outputs = ["action", "scores", *(f"next_{name}" for name in self.names)]

    def forward(self, obs: Tensor, start: Tensor, reward: Tensor, prev_action: Tensor, *leaves: Tensor) -> Any:
        pairs = zip(leaves, self.dtypes, strict=True)
        own = [torch.view_as_complex(leaf) if dtype.is_complex else leaf for leaf, dtype in pairs]
        inputs = Inputs(obs.to(self.obs_dtype), prev_action, torch.where(start, 0, reward), start)
        features, after = self.network.trunks.actor.step(inputs, tree_unflatten(own, self.form))
        action = self.network.greedy(features)
        after = [_real(leaf) for leaf in tree_leaves(after)]
        return in_env(self.action_space)(action), self.network.scores(features), action.clone(), *after

    def examples(self, agent: TrainedAgent, n: int) -> dict[str, Tensor]:
        """Inputs of n environments that begin an episode, by name."""
        space = deepcopy(self.observation_space)
        space.seed(0)
        obs = np.stack([np.asarray(space.sample()) for _ in range(n)])
        memory = [_real(leaf).clone() for leaf in tree_leaves(self.network.trunks.actor.initial_state(n))]
        first = [torch.from_numpy(obs), torch.ones(n, dtype=torch.bool), torch.zeros(n)]
        return dict(zip(self.inputs, [*first, agent.initial_state(n).prev_action.cpu(), *memory], strict=True))


def _real(leaf: Tensor) -> Tensor:
    return torch.view_as_real(leaf) if leaf.is_complex() else leaf


def _word(key: Any) -> str:
    """A step on the way to a leaf of a state, for its name."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


aten = torch.ops.aten


class Pair(NamedTuple):
    """re + i im."""

    re: Tensor
    im: Tensor

    @classmethod
    def of(cls, x: Any) -> "Pair":
        """A number or a tensor, real or complex, as a pair."""
        if isinstance(x, Pair):
            return x
        if isinstance(x, complex):
            return cls(torch.tensor(x.real), torch.tensor(x.imag))
        if isinstance(x, Tensor) and x.is_complex():
            return cls(x.real.clone(), x.imag.clone())
        x = torch.as_tensor(x)
        return cls(x, torch.zeros_like(x))


def _multiply(x: Any, y: Any) -> Pair:
    if not isinstance(x, Pair) or not isinstance(y, Pair):  # a real factor is exact, and half the work
        pair, factor = (x, y) if isinstance(x, Pair) else (y, x)
        return Pair(pair.re * factor, pair.im * factor)
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _divide(x: Any, y: Any) -> Pair:
    if not isinstance(y, Pair):
        return Pair(x.re / y, x.im / y)
    size = y.re.square() + y.im.square()
    above = _multiply(x, Pair(y.re, -y.im))
    return Pair(above.re / size, above.im / size)


def _exp(x: Pair) -> Pair:
    size = x.re.exp()
    return Pair(size * x.im.cos(), size * x.im.sin())


def _added(sign: int) -> Callable[..., Pair]:
    def add(x: Any, y: Any, alpha: float = 1) -> Pair:
        x, y = Pair.of(x), Pair.of(y)
        return Pair(x.re + sign * alpha * y.re, x.im + sign * alpha * y.im)

    return add


REPLACED: Mapping[Any, Callable[..., Any]] = {
    aten.cumprod.default: lambda x, dim: torch.stack(list(accumulate(x.unbind(dim), mul)), dim),
}
"""Operators of real numbers that the exporter to ONNX lacks, in others."""

ON_PAIRS: Mapping[Any, Callable[..., Any]] = {
    aten.add.Tensor: _added(1),
    aten.sub.Tensor: _added(-1),
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _divide,
    aten.exp.default: _exp,
    aten.polar.default: lambda size, angle: Pair(size * angle.cos(), size * angle.sin()),
    aten.complex.default: Pair,
    aten.where.self: lambda condition, x, y: Pair(
        *(torch.where(condition, a, b) for a, b in zip(Pair.of(x), Pair.of(y), strict=True))
    ),
    aten.full_like.default: lambda x, value, **how: Pair(
        torch.full_like(x.re, value.real), torch.full_like(x.im, value.imag)
    ),
    aten._conj_physical.default: lambda x: Pair(x.re, -x.im),
    aten.view_as_real.default: lambda x: torch.stack(x, -1),
    aten.view_as_complex.default: lambda x: Pair(x[..., 0], x[..., 1]),
    aten.sym_size.int: lambda x, dim: x.re.shape[dim],
}
"""The operators with complex arguments or results that the memories use, on pairs."""

EACH = (
    aten.neg.default, aten.clone.default, aten.view.default, aten.expand.default, aten.unsqueeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.select.int, aten.slice.Tensor, aten.permute.default, aten.cat.default,
    aten.sum.dim_IntList,
)  # fmt: skip
"""Operators that act on real and imaginary parts alike."""


WITHOUT_DROPOUT = (aten.scaled_dot_product_attention.default,)
"""Operators that could draw random numbers, and draw none as they are used."""


class Portable(nn.Module):
    """An exported graph, computed by the operators above in the place of those that ONNX lacks.

    Raises UserError, naming the operator, if one of complex numbers has no form on pairs.
    """

    def __init__(self, program: ExportedProgram):
        super().__init__()
        self.traced = program.module()  # not `graph`, which a module of torch.fx has itself

    def forward(self, *inputs: Tensor) -> Any:
        interpreter = _Interpreter(self.traced)
        interpreter.extra_traceback = False  # an error is a sentence
        return interpreter.run(*inputs)


class _Interpreter(fx.Interpreter):
    """Runs a graph with pairs in the place of complex tensors."""

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "get_attr":
            result = super().run_node(n)
            return Pair.of(result) if isinstance(result, Tensor) and result.is_complex() else result
        if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) and n.target not in WITHOUT_DROPOUT:
            raise UserError(f"cannot be exported: it draws random numbers as it reads ({n.target})")
        if n.op != "call_function" or (n.target not in REPLACED and not _has_complex(n)):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target in REPLACED:
            return REPLACED[n.target](*args, **kwargs)
        if n.target in ON_PAIRS:
            return ON_PAIRS[n.target](*args, **kwargs)
        if n.target in EACH:
            re, im = (tree_map(lambda x, i=i: x[i] if _is_pair(x) else x, args, is_leaf=_is_pair) for i in (0, 1))
            return Pair(n.target(*re, **kwargs), n.target(*im, **kwargs))
        raise UserError(f"cannot be exported: {n.target} of complex numbers has no form on pairs of real ones")


def _is_pair(x: Any) -> bool:
    return isinstance(x, Pair)


def _has_complex(call: fx.Node) -> bool:
    """Whether a call has complex tensors among its arguments or results."""
    values = (node.meta.get("val") for node in (call, *call.all_input_nodes))
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)
