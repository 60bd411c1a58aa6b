"""From a checked configuration to the parts of a run; nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv

from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.off_policy import OffPolicyAgent
from rlmem.agents.trunk import Trunk
from rlmem.algos.base import Algorithm, Plan
from rlmem.batching import Batching
from rlmem.config.catalog import default_choices
from rlmem.config.compose import Config
from rlmem.config.messages import show
from rlmem.config.schema import Evaluation
from rlmem.config.targets import build, locate, require_kind
from rlmem.errors import NotHere, UserError, one_line
from rlmem.loops.base import one_thread
from rlmem.memory.base import Memory
from rlmem.nets.encoder import InputEncoder
from rlmem.parallel import launched
from rlmem.run.forecast import large_agent, require_environments, require_memory
from rlmem.scan import Engine, chosen_engine, native, triton_scan
from rlmem.seeding import Streams
from rlmem.supervised.classify import Labelled
from rlmem.supervised.predictor import Predictor
from rlmem.system.hardware import cores

EVAL_ENVS = 64
"""Environments that play evaluation episodes side by side, at most."""

MANY_ENVS = 1024
"""Above this count, build one environment first to estimate memory."""

Agent = ActorCritic | OffPolicyAgent | Predictor

BASES: dict[str, tuple[type, ...]] = {
    "algo": (Algorithm,),
    "batching": (Batching,),
    "encoder": (InputEncoder,),
    "env": (VectorEnv, Labelled),
}
"""What the targets of groups must give, beside a memory, which has more to show."""


@dataclass
class Parts:
    """What a run is made of, before anything is written."""

    streams: Streams
    device: torch.device
    env: VectorEnv
    agent: Any
    algo: Algorithm
    batching: Batching
    num_envs: int
    """Environments, or the rows that a supervised algorithm reads side by side."""
    plan: Plan


def assemble(config: Config, num_envs: int | None = None, to_plan: bool = False) -> Parts:
    """Build and check everything that a run needs, writing nothing. Raises UserError.

    num_envs: of an agent that plays, and learns no more;  to_plan: `env` and `agent` may be no more than what `summary`
    needs: one environment, whatever `num_envs` of the parts says, and a large agent without numbers
    """
    values = config.values
    if values["on_exists"] == "resume" and values["run_dir"] is None:
        raise UserError("on_exists=resume: expected the run's directory as well; e.g. run_dir=runs/my_run")
    streams = Streams(values["seed"])
    device = choose_device(values["device"])
    algo, batching = _build(config, "algo"), _build(config, "batching")
    asked = num_envs or share_of_envs(config, algo, device) or values["env"].get("num_envs")
    first = asked is not None and (to_plan or asked > MANY_ENVS)
    env = make_source(config, asked, to_plan=first)
    if replaced := config.values["env"].get("evaluation"):
        with closing(make_evaluation_env(config, 1)) as other:
            require_same_spaces(config, env, other, f"env.evaluation={show(replaced)}")
    rows = algo.rows or asked or getattr(env, "num_envs", 1)
    processes = values["trainer"]["devices"]
    plan = Plan(config.choices, env, batching, values["total_steps"], rows, processes)
    if problems := algo.problems(plan):
        raise UserError(*problems)

    def make_agent(make_memory: Callable[[int], Memory]) -> Agent:
        def make_trunk() -> Trunk:
            spaces = {"observation_space": env.single_observation_space, "action_space": env.single_action_space}
            encoder = _build(config, "encoder", **spaces)
            return Trunk(encoder, make_memory(encoder.output_size))

        return algo.make_agent(make_trunk, env.single_action_space)

    agent = large_agent(config, make_agent, device, to_learn=num_envs is None)
    if agent is None or not to_plan:
        with streams.module_init("init"), one_thread():  # orthogonal weights round differently on more threads
            try:
                agent = make_agent(lambda size: build_memory(config, size, device)).to(device)
            except (RuntimeError, MemoryError) as error:  # torch's way of saying that it is too large
                raise UserError(f"memory={config.choices['memory']}: cannot be built ({one_line(error)})") from error
    if num_envs is None:
        require_memory(env, agent, algo, plan, device)
    if first and not to_plan:
        env.close()
        env = make_source(config, asked)
    return Parts(streams, device, env, agent, algo, batching, rows, plan)


def share_of_envs(config: Config, algo: Algorithm, device: torch.device) -> int | None:
    """The environments of one of several processes; None: the only one. UserError if so many cannot train together."""
    devices, there = config.values["trainer"]["devices"], launched()
    where = f"trainer.devices={devices}"
    if there is not None and there.size != devices:
        raise UserError(
            f"{where}: this is one of {there.size} processes (WORLD_SIZE={there.size}); expected as many devices; "
            f"e.g. trainer.devices={there.size}"
        )
    if devices == 1:
        return None
    if algo.one_process is not None:
        what = f"algo={config.choices['algo']} {algo.one_process}, in one process"
        raise UserError(f"{where}: {what}; expected 1; e.g. algo=ppo")
    num_envs = config.values["env"].get("num_envs")
    if num_envs is None or num_envs % devices:
        raise UserError(
            f"env.num_envs={show(num_envs)}: cannot be divided among {where}; expected a multiple; "
            f"e.g. env.num_envs={devices * 32}"
        )
    needed = devices if there is None else there.local + 1
    if device.type == "cuda" and torch.cuda.device_count() < needed:
        raise UserError(
            f"{where}: each process takes a GPU, and there are {torch.cuda.device_count()} here; expected at most as "
            f"many; e.g. device=cpu"
        )
    return num_envs // devices


def _build(config: Config, group: str, **runtime: Any) -> Any:
    """What a group describes; values that do not go together become a UserError."""
    where, node = f"{group}={config.choices[group]}", config.values[group]
    try:
        return _built(where, group, node, **runtime)
    except ValueError as error:
        raise UserError(f"{where}: {error}; see `rlmem config {group}=...`") from error
    except UserError:
        raise
    except Exception as error:  # it is anybody's code
        what = f"{node['_target_']} cannot be built ({one_line(error)})"
        raise UserError(f"{where}: {what}; --debug shows the traceback") from error


def _built(where: str, group: str, node: dict[str, Any], **runtime: Any) -> Any:
    """What a node describes. UserError if it is of another kind than the group's, before anything is called."""
    try:
        require_kind(node["_target_"], BASES[group])
    except UserError as error:
        raise UserError(f"{where}: {error}; e.g. {group}={default_choices()[group]}") from error
    made = build(node, **runtime)
    if not isinstance(made, BASES[group]):
        what = f"{node['_target_']} returned a {type(made).__name__}, not what its annotation says"
        raise UserError(f"{where}: {what}; e.g. {group}={default_choices()[group]}")
    return made


def build_memory(config: Config, input_size: int, device: torch.device) -> Memory:
    """The memory of `config` on `device`, for inputs of that size. UserError says why it cannot be built or is none."""
    node = config.values["memory"]
    where, doing, name = f"memory={config.choices['memory']}", "cannot be built", node["_target_"]
    try:
        require_kind(name, (Memory,))
    except UserError as error:
        bases = "rlmem.memory.Memory, LinearRecurrence or RecurrentCell"
        raise UserError(f"{where}: {error}; e.g. derive it from {bases}") from error
    try:
        memory = build(node, input_size=input_size)
        if not isinstance(memory, Memory):
            raise UserError(f"{where}: {name} returned a {type(memory).__name__}, not what its annotation says")
        if missing := [size for size in ("input_size", "output_size") if not hasattr(memory, size)]:
            raise UserError(f"{where}: {name} does not set {' and '.join(missing)}; e.g. self.{missing[0]} = ...")
        memory = memory.to(device)
        doing = "fails in initial_state(1)"
        memory.initial_state(1)
    except UserError:
        raise
    except Exception as error:  # the memory is anybody's code
        raise UserError(f"{where}: {name} {doing} ({one_line(error)}); --debug shows the traceback") from error
    scan_engines(memory, device)
    return memory


def make_env(config: Config, num_envs: int | None = None) -> VectorEnv:
    """The vector environment of `config`, of another size if given; what it refuses becomes a UserError."""
    env = make_source(config, num_envs)
    if not isinstance(env, VectorEnv):
        what = "holds labelled sequences, in which nothing acts"
        raise UserError(f"env={config.choices['env']}: {what}; e.g. env={default_choices()['env']}")
    return env


def make_source(config: Config, num_envs: int | None = None, to_plan: bool = False) -> Any:
    """What `env` names: a vector environment, or what makes streams of labelled sequences (`Labelled`).

    to_plan: one environment is enough
    """
    node = {key: value for key, value in config.values["env"].items() if key != "evaluation"}
    node |= _sized(node, num_envs)
    where, number = f"env={config.choices['env']}", node.get("num_envs") or 1
    if to_plan or number > MANY_ENVS:
        one = _make_env(where, config, node | _sized(node, 1))
        require_environments(one, number)
        if to_plan:
            return one
        one.close()
    return _make_env(where, config, node)


def _sized(node: dict[str, Any], num_envs: int | None) -> dict[str, int]:
    """The number of environments as a key, where an environment has one: streams of labelled rows do not."""
    target = locate(node["_target_"])
    streams = isinstance(target, type) and issubclass(target, Labelled)
    return {} if num_envs is None or streams else {"num_envs": num_envs}


def evaluation_node(config: Config, given: Collection[str] = ()) -> dict[str, Any]:
    """What `env` is in evaluation: the keys of its mapping `evaluation` replace its own.

    given: keys of `env` that were set for this evaluation alone, and stay
    """
    node = dict(config.values["env"])
    replaced = node.pop("evaluation", None) or {}
    return node | {key: value for key, value in replaced.items() if key not in given}


def make_evaluation_env(config: Config, num_envs: int, given: Collection[str] = ()) -> VectorEnv:
    """The vector environment that `config` is evaluated in; UserError as for `make_env`."""
    replaced = config.values["env"].get("evaluation")
    where = f"env={config.choices['env']}" + (f" with env.evaluation={show(replaced)}" if replaced else "")
    node = evaluation_node(config, given)
    return _make_env(where, config, node | _sized(node, num_envs))


def _make_env(where: str, config: Config, node: dict[str, Any]) -> VectorEnv:
    see = f"see `rlmem config env={config.choices['env']}`"
    try:
        return _built(where, "env", node)
    except UserError:
        raise
    except ImportError as error:
        raise UserError(f"{where}: {error}") from error
    except (gym.error.Error, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"{where}: cannot be made ({error}); {see}") from error
    except Exception as error:  # it is anybody's code
        raise UserError(f"{where}: cannot be made ({one_line(error)}); {see}") from error


def max_steps(values: Mapping[str, Any]) -> int | None:
    """Steps that an episode may take in evaluations and analyses of a run with this configuration; None: no bound."""
    return values["evaluation"].get("max_steps", Evaluation.max_steps)


def require_same_spaces(config: Config, trained: VectorEnv, other: VectorEnv, what: str) -> None:
    """UserError, blaming `what`, if an agent of one environment cannot play the other."""
    for kind in ("observation", "action"):
        was, now = (getattr(env, f"single_{kind}_space") for env in (trained, other))
        if was != now:
            raise UserError(
                f"{what}: changes the {kind} space from {was} to {now}, which the agent cannot read; "
                f"expected the same spaces; e.g. another length of env={config.choices['env']}"
            )


def choose_device(name: str) -> torch.device:
    """cpu, cuda, or auto: cuda if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise NotHere("device=cuda: no CUDA device is available here; accepted: cpu, auto; e.g. device=auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    # cuDNN's recurrent kernels round to TF32 by default: training would not read what acting read.
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def scan_engines(memory: torch.nn.Module, device: torch.device) -> list[str]:
    """The engines that the scans of a memory run on, with the reason where the fastest is missing. UserError if a
    forced one cannot run."""
    forced = dict.fromkeys(str(module.engine) for module in memory.modules() if hasattr(module, "engine"))
    found = []
    for engine in forced:
        chosen = chosen_engine(cast(Engine, engine), device)
        name, best = ("triton", triton_scan) if device.type == "cuda" else ("native", native)
        why = best.missing() if (engine, chosen) == ("auto", "chunked") else None
        found.append(f"{chosen} scan" + (f" (the {name} engine {why})" if why else ""))
    return found


def threads_of(config: Config) -> int:
    """CPU threads of a process while it learns."""
    return config.values["threads"] or max(1, cores() // config.values["trainer"]["devices"])
