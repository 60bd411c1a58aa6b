"""From a checked configuration to the parts of a run, which fit its machine; nothing is written here."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import one_thread
from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import Agent, Exploration, Network
from rlmem.agents.encoder import InputEncoder
from rlmem.agents.graphs import Capture
from rlmem.agents.leaves import Leaves
from rlmem.agents.trunk import Trunk, Trunks
from rlmem.algos.base import Learner, Outline, Plan
from rlmem.batching import Batching
from rlmem.config.catalog import option
from rlmem.config.compose import Config
from rlmem.config.messages import to_text
from rlmem.config.rules import several_parts
from rlmem.config.schema import Settings
from rlmem.config.targets import locate
from rlmem.core.errors import NotHere, UserError, one_line
from rlmem.core.hardware import cores
from rlmem.core.parallel import launched
from rlmem.core.seeding import Streams
from rlmem.core.spaces import is_tree, leaves
from rlmem.loops.parts import Training
from rlmem.record.checkpoint import State
from rlmem.run.forecast import large_agent, require_environments, require_memory
from rlmem.run.nodes import (
    EVAL_ENVS,
    MANY_ENVS,
    build_group,
    build_memory,
    make_evaluation_env,
    make_source,
    read_leaves,
    require_number,
    require_same_spaces,
)
from rlmem.run.stored import load_agent, stored_config
from rlmem.scan import native

SEVERAL_PARTS = "the observation has several parts"


@dataclass
class Parts(Training):
    """What a run is made of, before anything is written.

    config: its configuration, in which the environment may have decided on the encoder
    plan: the run as its algorithm sees it
    outline: what the algorithm makes of the plan
    """

    config: Config
    plan: Plan
    outline: Outline

    @property
    def exploration(self) -> Exploration:
        """The departure of sampled actions from the policy at the end of training."""
        total = self.settings.total_steps
        return self.algo.explore(total, total)


def assemble(config: Config, num_envs: int | None = None, dry_run: bool = False) -> Parts:
    """Build and check everything that a run needs, writing nothing. Raises UserError.

    num_envs: environments of an agent that acts but does not learn; None: those of the configuration, to learn
    dry_run: build only what `summary` needs: a single environment, and a large agent as shapes without numbers
    """
    settings, streams, learns = config.settings, Streams(config.settings.seed), num_envs is None
    if settings.on_exists == "resume" and settings.run_dir is None:
        raise UserError("on_exists=resume: expected the run's directory as well; e.g. run_dir=runs/my_run")
    device = choose_device(settings.device)
    if settings.compile != "off" and learns:
        _require_graphs(settings, device)
    _compute_in(settings.precision, device)
    algo, batching = build_group(config, "algo", Learner), build_group(config, "batching", Batching)

    asked = num_envs or _share_of_envs(config, algo, device) or config.values["env"].get("num_envs")
    only_one = asked is not None and (dry_run or asked > MANY_ENVS)
    env = make_source(config, 1 if only_one else asked)
    if only_one:
        require_environments(env, asked or 1)
    config = with_encoder(config, env.single_observation_space)
    if replaced := config.values["env"].get("evaluation"):
        with closing(make_evaluation_env(config, 1)) as other:
            require_same_spaces(config, env, other, f"env.evaluation={to_text(replaced)}")

    rows = algo.rows or asked or getattr(env, "num_envs", 1)
    plan = Plan(config.choices, env, batching, settings.total_steps, rows, settings.trainer.devices, learns)
    outline = algo.outline(plan)
    if problems := [*outline.problems, *_problems_of_evaluation(config, algo)]:
        raise UserError(*problems)

    agent = large_agent(config, lambda: make_agent(config, algo, env, torch.device("meta")), device, learns)
    if agent is None or not dry_run:
        with streams.module_init("init"), one_thread():  # orthogonal weights round differently on more threads
            try:
                agent = make_agent(config, algo, env, device).to(device)
            except NotImplementedError:  # a RuntimeError too, of a class that is not filled in
                raise
            except (RuntimeError, MemoryError) as error:  # torch's error for what is too large
                raise UserError(f"memory={config.choices['memory']}: cannot be built ({one_line(error)})") from error
    agent.computes_in = settings.precision
    if learns:
        require_memory(plan, agent, outline.storage, device)
    if only_one and not dry_run:
        env.close()
        env = make_source(config, asked)
        plan = replace(plan, env=env)
    if learns and not (dry_run and getattr(env, "num_envs", 1) == 1):
        require_number(config, env, asked)
    makers = partial(_make_evaluation_envs, config), partial(_make_actor, config)
    evaluation = streams
    if settings.evaluation.own_episodes:
        learner = json.dumps([config.values["memory"], config.values["algo"]], sort_keys=True, default=str)
        evaluation = Streams(streams.int(f"evaluation/{learner}"))
    return Parts(
        algo, settings, streams, device, env, agent, batching, rows, *makers, evaluation, config, plan, outline
    )


def _make_evaluation_envs(config: Config, number: int) -> VectorEnv:
    return make_evaluation_env(config, min(number, EVAL_ENVS))


def _make_actor(config: Config) -> tuple[VectorEnv, Agent]:
    """The environments of an actor in another process, and its agent, which acts on the CPU."""
    on_cpu = config.values | {"device": "cpu", "compile": "off", "precision": "float32"}
    parts = assemble(replace(config, values=on_cpu))
    return parts.env, parts.agent


def make_agent(config: Config, algo: Learner, env: Any, device: torch.device) -> Network:
    """The agent of a configuration, from the bottom up: encoder, memory, trunk, agent."""
    observed, actions = algo.encoded(env.single_observation_space), env.single_action_space
    actor, critic = _leaves_read(config, observed)
    encoder, leaf = _encoder(config, observed, actions, actor)
    memory = build_memory(f"memory={config.choices['memory']}", config.values["memory"], encoder.output_size, device)
    trunk = Trunk(encoder, memory, leaf)
    if not algo.separate:
        return algo.make_agent(Trunks(trunk), actions)
    encoder, leaf = _encoder(config, observed, actions, critic, of_critic=True)
    memory = build_memory(*_critic_memory(config), encoder.output_size, device)
    return algo.make_agent(Trunks(trunk, Trunk(encoder, memory, leaf)), actions)


def with_encoder(config: Config, observation_space: Space) -> Config:
    """`config` with another encoder where the actor reads several parts. Raises UserError if one was chosen."""
    if not is_tree(observation_space):
        return config
    names, chosen = read_leaves(config, list(leaves(observation_space)))[0], config.choices["encoder"]
    if len(names) == 1 or _reads_leaves(config.values["encoder"]):
        return config
    needed, shared = several_parts()
    for line in config.overrides:
        path = line.lstrip("+").partition("=")[0]
        if path == "encoder" or (path.startswith("encoder.") and path.removeprefix("encoder.") not in shared):
            name, without = (chosen, "") if path == "encoder" else (f"encoder={chosen}", f", without {path}")
            problem = f"{name} reads one part of an observation, and that of env={config.choices['env']} has"
            raise UserError(f"{line}: {problem}: {', '.join(names)}; e.g. encoder={needed}{without}")
    before = config.values["encoder"]
    encoder = option("encoder", needed) | {key: before[key] for key in shared if key in before}
    return replace(
        config,
        values=config.values | {"encoder": encoder},
        choices=config.choices | {"encoder": needed},
        ruled=config.ruled | {"encoder": SEVERAL_PARTS},
    )


LeafNames = list[str] | None
"""Paths of leaves; None for an observation of a single part."""


def _leaves_read(config: Config, observed: Space) -> tuple[LeafNames, LeafNames]:
    """The leaves that actor and critic read. Raises UserError if `encoder.leaves` names another."""
    if not is_tree(observed):
        return None, None
    actor, critic = read_leaves(config, list(leaves(observed)))
    read = [name for name in leaves(observed) if name in {*actor, *critic}]
    if unknown := [name for name in _leaf_settings(config.values["encoder"]) if name not in read]:
        problem = f"`{unknown[0]}` is no leaf that is read; these are: {', '.join(read)}"
        raise UserError(f"encoder.leaves: {problem}; e.g. encoder.leaves={{}}")
    return actor, critic


def _encoder(
    config: Config, observed: Space, actions: Space, names: LeafNames, of_critic: bool = False
) -> tuple[InputEncoder, str | None]:
    """The encoder of some leaves, and the leaf that it reads; None: it reads all of them."""
    build_encoder = partial(build_group, config, "encoder", InputEncoder, action_space=actions)
    if names is None:
        return build_encoder(observation_space=observed), None
    node, parts = config.values["encoder"], {name: leaves(observed)[name] for name in names}
    if _reads_leaves(node):
        read: dict[str, Any] = {"include": names, "exclude": []} if "include" in node else {}
        if settings := _leaf_settings(node):
            read["leaves"] = {name: setting for name, setting in settings.items() if name in parts}
        return build_encoder(observation_space=spaces.Dict(parts), **read), None
    if len(parts) == 1:
        ((leaf, space),) = parts.items()
        try:
            return build_encoder(observation_space=space), leaf
        except UserError:
            if not of_critic:
                raise
    # A critic that reads more than the actor, or what the actor's encoder cannot.
    shared = {key: node[key] for key in several_parts()[1] if key in node}
    return Leaves(spaces.Dict(parts), actions, include=names, **shared), None


def _reads_leaves(node: dict[str, Any]) -> bool:
    return bool(getattr(locate(node["_target_"]), "reads_leaves", False))


def _leaf_settings(node: dict[str, Any]) -> dict[str, Any]:
    """The settings of single leaves by their paths, of an encoder that has some."""
    settings = node.get("leaves") if _reads_leaves(node) else None
    return settings if isinstance(settings, dict) else {}


def _critic_memory(config: Config) -> tuple[str, dict[str, Any]]:
    """Name and node of the critic's memory: `algo.critic_memory`, as wide as that of `config`, or else the same."""
    ours, name = config.values["memory"], config.values["algo"].get("critic_memory")
    if name is None:
        return f"memory={config.choices['memory']}", ours
    try:
        node = option("memory", name)
    except UserError as error:
        raise UserError(f"algo.critic_memory={to_text(name)}: {error}") from error
    width = {"hidden_size": ours["hidden_size"]} if "hidden_size" in node and "hidden_size" in ours else {}
    return f"memory={name}", node | width


def _problems_of_evaluation(config: Config, algo: Learner) -> Iterator[str]:
    evaluation = config.settings.evaluation
    if evaluation.video_every is not None and not algo.acts:
        problem = f"nothing acts in a run of algo={config.choices['algo']}"
        yield f"evaluation.video_every={evaluation.video_every}: {problem}; e.g. null"
    if evaluation.stop_at is not None and evaluation.every is None:
        yield "evaluation.stop_at: there are evaluations only at the end; e.g. evaluation.every=50000"


def assemble_trained(
    config: Config, run_dir: Path, which: int | str | None = None, changed: str = ""
) -> tuple[Parts, State]:
    """The parts of a run with one environment and the agent of a checkpoint (`agent_state`), and that checkpoint.

    changed: overrides of the environment in `config`, which are to blame if the agent does not fit it
    """
    parts = assemble(config, num_envs=1)
    try:
        return parts, load_agent(parts.agent, run_dir, which, changed)
    except BaseException:
        parts.env.close()
        raise


def open_trained(
    run_dir: Path, which: int | str | None = None, overrides: Sequence[str] = (), trust: bool = False
) -> tuple[Parts, State]:
    """The parts and the checkpoint of a run whose agent acts, from `assemble_trained`.

    Raises UserError if nothing acts in it; the arguments and other errors are as for `stored_config`.
    """
    config = stored_config(run_dir, overrides, trust)
    parts, checkpoint = assemble_trained(config, run_dir, which)
    if not parts.algo.acts:
        parts.env.close()
        raise UserError(f"{run_dir}: nothing acts in a run of algo={config.choices['algo']}; e.g. a run of algo=ppo")
    return parts, checkpoint


def choose_device(name: str) -> torch.device:
    """The device called cpu, cuda or auto, which is cuda if there is one. Raises NotHere without a GPU for `cuda`."""
    if name == "cuda" and not torch.cuda.is_available():
        raise NotHere("device=cuda: no CUDA device is available here; accepted: cpu, auto; e.g. device=auto")
    # cuDNN's recurrent kernels round to TF32 by default: training would not read what acting read.
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _compute_in(precision: str, device: torch.device) -> None:
    """Let products on CUDA be of this precision, in this process. Raises UserError where `device` lacks them."""
    why = None
    if precision != "float32" and device.type != "cuda":
        why = f"it needs an NVIDIA GPU, and this run is on {device}"
    elif precision == "bf16" and not hasattr(torch.ops.aten.mm, "dtype"):
        why = f"torch {torch.__version__} has no such products; expected a newer torch"
    elif precision != "float32" and torch.cuda.get_device_capability(device) < (8, 0):
        why = "this GPU has no instructions for it"
    if why:
        raise UserError(f"precision={precision}: {why}; e.g. precision=float32")
    native.rounds_to_bf16 = precision == "bf16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _require_graphs(settings: Settings, device: torch.device) -> None:
    """Raise UserError if CUDA graphs cannot be recorded as the settings ask, on this device."""
    if settings.precision == "bf16":
        raise UserError(
            "compile=graphs: no graph was tried with precision=bf16; expected one of the two; e.g. compile=off"
        )
    if device.type != "cuda":
        raise NotHere(f"compile=graphs: CUDA graphs need a GPU, and this run is on {device}; e.g. compile=off")
    try:
        _, replay = Capture()(torch.zeros(2, device=device).sin)
        replay()
        torch.cuda.synchronize()
    except Exception as error:  # of CUDA
        raise UserError(f"compile=graphs: it fails here ({one_line(error)}); e.g. compile=off") from error


def learning_threads(settings: Settings) -> int:
    """The CPU threads of each process of a run while it learns."""
    return settings.threads or max(1, cores() // settings.trainer.devices)


def _share_of_envs(config: Config, algo: Learner, device: torch.device) -> int | None:
    """Environments per process of a run, None if there is one; UserError if they cannot train together."""
    devices, there = config.settings.trainer.devices, launched()
    where = f"trainer.devices={devices}"
    if there is not None and there.size != devices:
        problem = f"this is one of {there.size} processes (WORLD_SIZE={there.size}); expected as many devices"
        raise UserError(f"{where}: {problem}; e.g. trainer.devices={there.size}")
    if devices == 1:
        return None
    if algo.one_process is not None:
        problem = f"algo={config.choices['algo']} {algo.one_process}, in one process"
        raise UserError(f"{where}: {problem}; expected 1; e.g. algo=ppo")
    num_envs = config.values["env"].get("num_envs")
    if num_envs is None or num_envs % devices:
        problem = f"cannot be divided among {where}; expected a multiple; e.g. env.num_envs={devices * 32}"
        raise UserError(f"env.num_envs={to_text(num_envs)}: {problem}")
    if device.type == "cuda" and torch.cuda.device_count() < (devices if there is None else there.local + 1):
        problem = f"each process takes a GPU, and there are {torch.cuda.device_count()} here; expected at most as many"
        raise UserError(f"{where}: {problem}; e.g. device=cpu")
    return num_envs // devices
