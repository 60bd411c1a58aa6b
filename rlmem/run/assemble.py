"""From a checked configuration to the parts of a run, which fit its machine; nothing is written here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import Network
from rlmem.algos.base import Learner, Outline, Plan
from rlmem.batching import Batching
from rlmem.config.compose import Config
from rlmem.config.messages import to_text
from rlmem.config.schema import Settings
from rlmem.errors import NotHere, UserError, one_line
from rlmem.loops.base import one_thread
from rlmem.memory.base import Memory
from rlmem.nets.graphs import Capture
from rlmem.parallel import launched
from rlmem.record.checkpoint import State
from rlmem.run.build import MANY_ENVS, build_group, build_memory, make_evaluation_env, make_source, require_same_spaces
from rlmem.run.forecast import large_agent, require_memory
from rlmem.run.stored import load_agent
from rlmem.run.trunks import make_trunks, with_encoder
from rlmem.scan import native
from rlmem.seeding import Streams
from rlmem.system.hardware import cores


@dataclass
class Parts:
    """What a run is made of, before anything is written.

    config: its configuration, in which the environment may have decided on the encoder
    num_envs: environments of this process, or the rows that a supervised algorithm reads side by side
    plan: the run as its algorithm sees it
    outline: what the algorithm makes of the plan
    """

    config: Config
    streams: Streams
    device: torch.device
    env: VectorEnv
    agent: Any
    algo: Learner
    batching: Batching
    num_envs: int
    plan: Plan
    outline: Outline


def assemble(config: Config, num_envs: int | None = None, dry_run: bool = False) -> Parts:
    """Build and check everything that a run needs, writing nothing. Raises UserError.

    num_envs: environments of an agent that acts but does not learn; None: those of the configuration, to learn
    dry_run: build only what `summary` needs: a single environment, and a large agent as shapes without numbers
    """
    settings = config.settings
    if settings.on_exists == "resume" and settings.run_dir is None:
        raise UserError("on_exists=resume: expected the run's directory as well; e.g. run_dir=runs/my_run")
    streams = Streams(settings.seed)
    device = choose_device(settings.device)
    if settings.compile != "off" and num_envs is None:
        _require_graphs(settings, device)
    _compute_in(settings.precision, device)
    algo, batching = build_group(config, "algo"), build_group(config, "batching")
    asked = num_envs or _share_of_envs(config, algo, device) or config.values["env"].get("num_envs")
    only_one = asked is not None and (dry_run or asked > MANY_ENVS)
    env = make_source(config, asked, only_one, exact=num_envs is None)
    config = with_encoder(config, env.single_observation_space)
    if replaced := config.values["env"].get("evaluation"):
        with closing(make_evaluation_env(config, 1)) as other:
            require_same_spaces(config, env, other, f"env.evaluation={to_text(replaced)}")
    rows = algo.rows or asked or getattr(env, "num_envs", 1)
    plan = Plan(config.choices, env, batching, settings.total_steps, rows, settings.trainer.devices, num_envs is None)
    outline = algo.outline(plan)
    problems = [*outline.problems]
    if settings.evaluation.video_every is not None and not algo.acts:
        what = f"nothing acts in a run of algo={config.choices['algo']}"
        problems.append(f"evaluation.video_every={settings.evaluation.video_every}: {what}; e.g. null")
    if settings.evaluation.stop_at is not None and settings.evaluation.every is None:
        problems.append("evaluation.stop_at: there are evaluations only at the end; e.g. evaluation.every=50000")
    if problems:
        raise UserError(*problems)

    def make_agent(make_memory: Callable[[int], Memory]) -> Network:
        seen = algo.encoded(env.single_observation_space)
        trunks = make_trunks(config, seen, env.single_action_space, make_memory, device, algo.separate)
        return algo.make_agent(trunks, env.single_action_space)

    agent = large_agent(config, make_agent, device, learns=num_envs is None)
    if agent is None or not dry_run:
        with streams.module_init("init"), one_thread():  # orthogonal weights round differently on more threads
            try:
                agent = make_agent(lambda size: build_memory(config, size, device)).to(device)
            except (RuntimeError, MemoryError) as error:  # torch's error for what is too large
                raise UserError(f"memory={config.choices['memory']}: cannot be built ({one_line(error)})") from error
    agent.computes_in = settings.precision
    if num_envs is None:
        require_memory(plan, agent, outline.storage, device)
    if only_one and not dry_run:
        env.close()
        env = make_source(config, asked, exact=num_envs is None)
        plan = replace(plan, env=env)
    return Parts(config, streams, device, env, agent, algo, batching, rows, plan, outline)


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
        what = f"this is one of {there.size} processes (WORLD_SIZE={there.size}); expected as many devices"
        raise UserError(f"{where}: {what}; e.g. trainer.devices={there.size}")
    if devices == 1:
        return None
    if algo.one_process is not None:
        what = f"algo={config.choices['algo']} {algo.one_process}, in one process"
        raise UserError(f"{where}: {what}; expected 1; e.g. algo=ppo")
    num_envs = config.values["env"].get("num_envs")
    if num_envs is None or num_envs % devices:
        what = f"cannot be divided among {where}; expected a multiple; e.g. env.num_envs={devices * 32}"
        raise UserError(f"env.num_envs={to_text(num_envs)}: {what}")
    if device.type == "cuda" and torch.cuda.device_count() < (devices if there is None else there.local + 1):
        what = f"each process takes a GPU, and there are {torch.cuda.device_count()} here; expected at most as many"
        raise UserError(f"{where}: {what}; e.g. device=cpu")
    return num_envs // devices
