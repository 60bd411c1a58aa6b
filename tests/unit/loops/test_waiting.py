"""On a GPU, an acting step and a gradient step queue their work without waiting for the device.

Where there is none, a mode counts the operators that would have to wait, since their result is a number for Python or
has a shape that depends on values, and the calls that bring values to the CPU. What is computed on the CPU on purpose
is NumPy's, and not seen. On a GPU, CUDA's own check raises an error, too.
"""

import re
import traceback
from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from helpers import ROOT, fast_only, make_memory, once_per_class, small_run
from recordings import provide_recording
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.off_policy import OffPolicyAgent
from rlmem.agents.trunk import Trunk
from rlmem.algos.dqn import PQN
from rlmem.algos.impala import Impala
from rlmem.algos.off_policy import OffPolicy
from rlmem.algos.ppo import PPO
from rlmem.algos.supervised.base import Supervised
from rlmem.algos.supervised.decision_agent import DecisionAgent
from rlmem.batching import Replay
from rlmem.core.types import with_host
from rlmem.memory import gru
from rlmem.memory.base import Packing
from rlmem.run.assemble import choose_device
from rlmem.scan.native import constant_weights

pytestmark = pytest.mark.gpu
DEVICE = choose_device("auto")
WAITING = {
    "_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "unique_consecutive", "_unique2", "is_nonzero",
    "equal", "bincount",
}  # fmt: skip
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
TO_PYTHON = {"item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__"}
BY_FLAGS = (torch.bool, torch.uint8)


class Waits(TorchDispatchMode):
    """Counts what would wait for the device, by operator and line of rlmem.

    on_cpu: tensors that lie on the CPU whatever the device, such as the sizes of a PackedSequence
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.calls = 0
        self.on_cpu: list[Tensor] = []
        self.functions = _Functions(self)

    def note(self, name: str) -> None:
        lines = [f for f in traceback.extract_stack() if "rlmem" in f.filename and "tests" not in f.filename]
        self.found[f"{name} in {lines[-1].filename}:{lines[-1].lineno}" if lines else name] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name.partition("::")[2]
        flags = name in INDEXING and any(isinstance(i, Tensor) and i.dtype in BY_FLAGS for i in args[1])
        waits = name in WAITING and args[0].device.type == DEVICE.type
        if waits or flags or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self.note(name)
        return func(*args, **kwargs)

    def around(self, function):
        """The function, watched."""

        def watched(*args, **kwargs):
            self.calls += 1
            if torch.cuda.is_available():
                torch.cuda.set_sync_debug_mode("error")
            try:
                with self, self.functions:
                    return function(*args, **kwargs)
            finally:
                if torch.cuda.is_available():
                    torch.cuda.set_sync_debug_mode("default")

        return watched


class _Functions(TorchFunctionMode):
    """Sees the calls of methods that the dispatcher does not."""

    def __init__(self, waits: Waits):
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in TO_PYTHON:
            lies_there = args[0].device.type == DEVICE.type
            if lies_there and not any(args[0] is tensor for tensor in self.waits.on_cpu):
                self.waits.note(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def stepped_as_on_a_device(monkeypatch):
    """Every slot is encoded, and cells step by their equations, not by a kernel's sequence of one step as on a CPU."""
    monkeypatch.setattr(gru, "native", SimpleNamespace(takes=lambda *tensors: False))
    monkeypatch.setattr(Trunk, "_repeats", lambda self, inputs: None)


@pytest.fixture
def learning(monkeypatch):
    """Counts in gradient steps, in which the sizes of a packed sequence lie on the CPU on purpose."""
    waits, pack = Waits(), Packing.__init__

    def packed(self, start: Tensor) -> None:
        pack(self, start)
        waits.on_cpu.append(self.batch_sizes)

    monkeypatch.setattr(Packing, "__init__", packed)
    return waits


@pytest.mark.parametrize("name", once_per_class())
def test_no_memory_waits_for_the_device(name, learning):
    memory, acting = make_memory(name, 8).to(DEVICE), Waits()
    begins = np.zeros((3, 20), bool)
    begins[1, 0] = begins[0, 7] = begins[2, 19] = True
    x, start, state = torch.randn(3, 20, 8, device=DEVICE), with_host(begins, DEVICE), memory.initial_state(3)

    def act():
        with torch.no_grad(), constant_weights(memory):
            memory.step(x[:, 0], memory.step(x[:, 1], state, start[:, 1])[1], start[:, 7])

    def learn():
        memory(x, state, start)[0].square().mean().backward()

    for run in (act, learn):
        run()  # what is made once, such as a kernel, may wait
    acting.around(act)()
    learning.around(learn)()
    assert not acting.found, acting.found
    assert not learning.found, learning.found


SMALL = "memory.hidden_size=4 encoder.hidden_size=4 evaluation.episodes=2 evaluation.max_steps=10"
PPO_RUN = (
    f"{SMALL} algo=ppo env=repeat_first env.num_envs=4 total_steps=200 algo.rollout_slots=16 algo.num_minibatches=2"
)
REPLAYED = f"{SMALL} env=repeat_first env.num_envs=2 total_steps=260 algo.batch_size=64 algo.update_ratio=0.1"
REPLAYED += " algo.random_steps=100 algo.learning_starts=150"
DECISION = (
    f"{SMALL} env.num_envs=2 env.horizon=20 algo.context=6 algo.batch_size=8 algo.eval_drops=[0.5] total_steps=500"
)
CONTINUOUS = REPLAYED.replace("repeat_first", "position_only_pendulum env.max_episode_steps=40")


LINES = [
    f"memory=ffm {PPO_RUN}",
    f"memory=gru {PPO_RUN}",
    f"memory=gpt {PPO_RUN}",
    f"memory=lstm batching=segment batching.length=10 {PPO_RUN}",
    f"memory=gru batching=tape batching.detach_every=8 {PPO_RUN}",
    f"memory=mlp batching=transitions {PPO_RUN}",
    f"algo=impala memory=lstm {PPO_RUN.replace('algo=ppo', '').replace('algo.num_minibatches=2', '')}",
    f"algo=dqn memory=gru batching=tape {REPLAYED}",
    f"algo=dqn memory=lstm batching=segment batching.length=10 batching.burn_in=4 {REPLAYED}",
    f"algo=sacd memory=ffm batching=tape {REPLAYED}",
    f"algo=sac memory=gru batching=tape {CONTINUOUS}",
    f"algo=td3 memory=mlp batching=transitions {CONTINUOUS}",
    f"algo=pqn memory=gru batching=tape {PPO_RUN.replace('algo=ppo', '')}",
    f"algo=r2d2 memory=lstm batching.rows=8 batching.length=10 batching.overlap=5 batching.burn_in=4 {REPLAYED}",
    "algo=classify memory=lstm env=temporal_order memory.hidden_size=4 evaluation.episodes=2 total_steps=3000",
    f"algo=decision_model memory=gpt env=pendulum algo.dataset=p.hdf5 algo.drop_information=true {DECISION}",
    f"algo=state_model memory=lru env=pendulum_p algo.dataset=p.hdf5 algo.window=8 {DECISION.split(' algo.context')[0]}"
    " algo.batch_size=8 total_steps=2000",
]


def test_every_kind_of_algorithm_is_watched():
    files = (ROOT / "conf/algo").glob("*.yaml")
    kinds = {path.stem: found[1] for path in files if (found := re.search(r"_target_: (\S+)", path.read_text()))}
    assert len(kinds) > 8
    watched = {kinds.get(part.removeprefix("algo=")) for line in LINES for part in line.split() if "algo=" in part}
    assert watched >= set(kinds.values())


@pytest.mark.parametrize("lines", fast_only([LINES[at] for at in (0, 8)], LINES))
def test_neither_acting_nor_learning_waits_for_the_device(in_tmp, lines, learning):
    acting = Waits()
    if "p.hdf5" in lines:
        provide_recording()
    steps = {(PPO, "minibatch"): learning, (PQN, "minibatch"): learning, (Impala, "loss"): learning}
    steps |= {(OffPolicy, "update"): learning, (Supervised, "update"): learning}
    steps[Replay, "_states_at"] = learning
    steps |= {(ActorCritic, "act"): acting, (OffPolicyAgent, "act"): acting, (DecisionAgent, "act_with"): acting}
    with ExitStack() as stack:
        for (kind, name), waits in steps.items():
            stack.enter_context(patch.object(kind, name, waits.around(getattr(kind, name))))
        small_run(*lines.split(), base=())
    assert learning.calls > 3 and (acting.calls > 20 or "classify" in lines or "state_model" in lines)
    assert not acting.found, acting.found
    assert not learning.found, learning.found
