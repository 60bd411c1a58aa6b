"""Objects from the nodes of a configuration: environments, memories, callbacks. A wrong node raises UserError."""

from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.autoreset import slot_layout
from rlmem.acting.guard import Folder, folder_of
from rlmem.acting.observed import observed
from rlmem.acting.workers import closing_well, raised
from rlmem.algos.supervised.classify import Labelled
from rlmem.config.catalog import default_choices
from rlmem.config.compose import Config
from rlmem.config.messages import shell, to_text
from rlmem.config.overrides import option_for_id
from rlmem.config.schema import CALLBACKS, WRAPPER
from rlmem.config.targets import build, locate
from rlmem.core.errors import UserError, one_line
from rlmem.core.spaces import ACTION_MASK, chosen
from rlmem.loops.parts import Callback
from rlmem.memory.base import Memory
from rlmem.memory.brc import BRC
from rlmem.memory.gru import GRU, LSTM
from rlmem.memory.xlstm import SLSTM
from rlmem.run.forecast import require_environments
from rlmem.scan import native, triton_scan


def built(where: str, node: dict[str, Any], kinds: type | tuple[type, ...], **runtime: Any) -> Any:
    """The object that a node describes. Raises UserError if it cannot be built, or is of another kind.

    where: the beginning of a message, such as `memory=gru`
    kinds: the class that it derives from, or several
    runtime: arguments that the configuration does not supply
    """
    name = node["_target_"]
    try:
        instance = build(node, **runtime)
    except UserError:
        raise
    except ValueError as error:  # values that do not go together
        see = f"see `rlmem config {shell(where)}`" if "=" in where else "--debug shows the traceback"
        raise UserError(f"{where}: {error}; {see}") from error
    except Exception as error:
        raise UserError(f"{where}: {name} cannot be built ({one_line(error)}); --debug shows the traceback") from error
    if not isinstance(instance, kinds):
        raise UserError(f"{where}: {name} returned a {type(instance).__name__}, not what its annotation says")
    return instance


def build_group(config: Config, group: str, kind: type, **runtime: Any) -> Any:
    """The object that a group describes; see `built`."""
    return built(f"{group}={config.choices[group]}", config.values[group], kind, **runtime)


def build_memory(where: str, node: dict[str, Any], input_size: int, device: torch.device) -> Memory:
    """The memory of a node, for inputs of `input_size` features. Raises UserError if it cannot be built."""
    memory, name = built(where, node, Memory, input_size=input_size), node["_target_"]
    if missing := [size for size in ("input_size", "output_size") if not hasattr(memory, size)]:
        raise UserError(f"{where}: {name} does not set {' and '.join(missing)}; e.g. self.{missing[0]} = ...")
    memory = memory.to(device)
    try:
        memory.initial_state(1)
    except Exception as error:
        problem = f"{name} fails in initial_state(1) ({one_line(error)})"
        raise UserError(f"{where}: {problem}; --debug shows the traceback") from error
    if device.type != "meta":  # where nothing is computed
        scan_engines(memory, device)
    return memory


def scan_engines(memory: Memory, device: torch.device) -> list[str]:
    """The engines that the scans and cells of a memory run on, and why not the fastest; UserError if one cannot run."""
    name, fastest = ("triton", triton_scan) if device.type == "cuda" else ("native", native)
    engines = []
    for part in memory.scanning():
        chosen = part.runs_on(device)
        why = fastest.missing() if (part.engine, chosen) == ("auto", "chunked") else None
        engines.append(f"{chosen} scan" + (f" (the {name} engine {why})" if why else ""))
    engines = list(dict.fromkeys(engines))
    kinds = GRU | LSTM | SLSTM | BRC  # which have kernels of their own
    has_cells = device.type == "cpu" and any(isinstance(module, kinds) for module in memory.modules())
    if has_cells and (why := native.missing()):
        engines.append(f"an operator at a time (the native engine {why})")
    return engines


def make_callbacks(config: Config, more: Sequence[Callback] = ()) -> dict[str, Callback]:
    """The callbacks of a configuration, and `more` by the names of their classes. Raises UserError."""
    nodes = config.values.get(CALLBACKS, {})
    callbacks = {name: built(f"{CALLBACKS}.{name}", node, Callback) for name, node in nodes.items()}
    for callback in more:
        if not isinstance(callback, Callback):
            raise UserError(f"{CALLBACKS}: expected objects of rlmem.Callback, got a {type(callback).__name__}")
        callbacks[f"{type(callback).__name__}-{len(callbacks)}"] = callback
    if callbacks and (devices := config.settings.trainer.devices) > 1:
        problem = f"runs of several processes (trainer.devices={devices}) call none"
        raise UserError(f"{CALLBACKS}: {problem}; e.g. trainer.devices=1")
    return callbacks


KINDS = (VectorEnv, Labelled)
"""The classes of what the group `env` describes."""

EVAL_ENVS = 64
"""The most environments that play evaluation episodes side by side."""

MANY_ENVS = 1024
"""Above this count, one environment is built first to estimate the memory of all."""


def read_leaves(config: Config, names: Sequence[str], strict: bool = False) -> tuple[list[str], list[str]]:
    """The leaves of an observation that the actor reads, and those that a critic reads, by their paths.

    strict: whether all that the keys name must be there; otherwise what nothing reads may be left out already

    Raises UserError if one is not, or if nothing is left to read.
    """
    node, asked = config.values["encoder"], config.values["algo"].get("critic_observation")
    try:
        actor = chosen(names, node.get("include"), node.get("exclude") or (), strict)
    except ValueError as error:
        raise UserError(f"encoder.include, encoder.exclude: {error}; e.g. encoder.include=null") from error
    try:
        return actor, actor if asked is None else chosen(names, asked, strict=strict)
    except ValueError as error:
        example = next((name for name in names if name != ACTION_MASK), names[0])
        raise UserError(f"algo.critic_observation={to_text(asked)}: {error}; e.g. [{example}]") from error


def make_env(config: Config, num_envs: int | None = None, every_leaf: bool = False) -> VectorEnv:
    """The vector environment of `config`, of `num_envs` instead of `env.num_envs`. Raises UserError.

    every_leaf: whether observations of several parts have all of them, not only those that an agent of `config` reads
    """
    asked = num_envs or config.values["env"].get("num_envs") or 1
    if asked > MANY_ENVS:
        with closing(make_source(config, 1)) as one:
            require_environments(one, asked)
    env = make_source(config, num_envs, every_leaf)
    if not isinstance(env, VectorEnv):
        problem = "holds labelled sequences, in which nothing acts"
        raise UserError(f"env={config.choices['env']}: {problem}; e.g. env={default_choices()['env']}")
    require_number(config, env, num_envs)
    return env


def make_source(config: Config, num_envs: int | None = None, every_leaf: bool = False) -> Any:
    """What `env` describes, the arguments being as for `make_env`: environments, or a `Labelled`. Raises UserError."""
    node = {key: value for key, value in config.values["env"].items() if key != "evaluation"}
    return _make(config, node, num_envs, every_leaf=every_leaf)


def require_number(config: Config, source: Any, num_envs: int | None) -> None:
    """Close a vector of another number of environments than `num_envs`, or else `env.num_envs`, and raise UserError."""
    asked = num_envs or config.values["env"].get("num_envs")
    if asked is not None and isinstance(source, VectorEnv) and source.num_envs != asked:
        source.close()
        problem = f"{config.values['env']['_target_']} returned {source.num_envs} environments; expected {asked}"
        example = f"env.num_envs={source.num_envs}"
        raise UserError(f"env={config.choices['env']}: {problem}, its argument num_envs; e.g. {example}")


def evaluation_node(config: Config, fixed: Collection[str] = ()) -> dict[str, Any]:
    """The node of `env` for an evaluation: the keys of `env.evaluation` replace its own, but none of those `fixed`."""
    node = dict(config.values["env"])
    replaced = node.pop("evaluation", None) or {}
    return node | {key: value for key, value in replaced.items() if key not in fixed}


def make_evaluation_env(config: Config, num_envs: int, fixed: Collection[str] = ()) -> VectorEnv:
    """The vector environment of `evaluation_node`; UserError as for `make_env`."""
    replaced = config.values["env"].get("evaluation")
    changed = f" with env.evaluation={to_text(replaced)}" if replaced else ""
    return _make(config, evaluation_node(config, fixed), num_envs, changed)


def require_same_spaces(config: Config, trained: VectorEnv, other: VectorEnv, culprit: str) -> None:
    """Raise UserError, blaming `culprit`, if an agent that was trained in one environment cannot play the other."""
    for kind in ("observation", "action"):
        was, now = (getattr(env, f"single_{kind}_space") for env in (trained, other))
        if was != now:
            changes = f"changes the {kind} space from {was} to {now}, which the agent cannot read"
            example = f"another length of env={config.choices['env']}"
            raise UserError(f"{culprit}: {changes}; expected the same spaces; e.g. {example}")


def _make(
    config: Config, node: dict[str, Any], num_envs: int | None, changed: str = "", every_leaf: bool = False
) -> Any:
    """What a node of `env` describes.

    changed: what the errors add to the name of the option
    every_leaf: see `make_env`
    """
    name, target, folder = str(config.choices["env"]), locate(node["_target_"]), Folder()
    only_sequences = isinstance(target, type) and issubclass(target, Labelled) and not issubclass(target, VectorEnv)
    if num_envs is not None and not only_sequences:
        node = node | {"num_envs": num_envs}
    where = f"env={name}{changed}"

    def read(names: Sequence[str]) -> set[str]:
        return {name for of in read_leaves(config, names, strict=True) for name in of}

    try:
        with folder.entered():
            env = build(node)
            if not isinstance(env, KINDS):
                problem = f"returned a {type(env).__name__}, not what its annotation says"
                raise UserError(f"{where}: {node['_target_']} {problem}")
            env = slot_layout(env) if isinstance(env, VectorEnv) else env
        env = _wrapped(config, env)
        if not isinstance(env, VectorEnv):
            return env
        with folder_of(env, folder).entered():
            return closing_well(observed(env, list if every_leaf else read))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{where}: {_why_not_made(error, name, node)}") from error


def _why_not_made(error: Exception, name: str, node: dict[str, Any]) -> str:
    """A sentence for what an environment raised while it was made."""
    see = f"see `rlmem config env={name}`"
    if isinstance(error, ImportError):  # names the package that is missing
        return str(error)
    if isinstance(
        error, (EOFError, ConnectionResetError, BrokenPipeError)
    ):  # AsyncVectorEnv asks a worker that is gone
        printed = "if worker processes make environments, one printed its reason"
        return f"cannot be made (it {raised(error)}); {printed}; {see}"
    if isinstance(error, gym.error.UnregisteredEnv):
        option = option_for_id(str(node.get("id")))
        game = str(node.get("id")).rpartition(":")[2]
        own = f"env.id=CartPole-v1, or env.id=my_module:{game} where my_module registers it"
        return f"cannot be made ({str(error).rstrip('.')}); e.g. {own if f'env={name} ' in option else option}"
    quoted = isinstance(error, (gym.error.Error, TypeError, ValueError, AssertionError))
    return f"cannot be made ({error if quoted else one_line(error)}); {see}"


def _wrapped(config: Config, env: Any) -> Any:
    """What `env` describes in the wrappers of `config`. Raises UserError."""
    for name, node in config.values.get(WRAPPER, {}).items():
        if not isinstance(env, VectorEnv):
            problem = f"env={config.choices['env']} holds labelled sequences, which have no wrappers"
            raise UserError(f"wrapper={name}: {problem}; e.g. wrapper=[]")
        env = built(f"wrapper={name}", node, VectorEnv, env=env)
    return env
