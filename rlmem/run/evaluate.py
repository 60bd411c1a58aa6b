"""Evaluating the agent of a run again: other episodes, other levels, a film."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlmem.acting.evaluate import Request, evaluate
from rlmem.acting.film import LONGEST, Watched, write_gif
from rlmem.config.compose import Config, apply
from rlmem.config.messages import shell
from rlmem.errors import UserError
from rlmem.loops.base import one_thread
from rlmem.run.assemble import (
    EVAL_ENVS,
    assemble,
    evaluation_node,
    make_evaluation_env,
    max_steps,
    require_same_spaces,
)
from rlmem.run.restore import agent_state, fitting, refuse_others, stored_config
from rlmem.seeding import Streams
from rlmem.system.strictjson import dumps

ACCEPTED = ("env.*", "device", "evaluation.max_steps")
"""Keys that may be set otherwise for an evaluation."""


def evaluate_run(
    run_dir: Path,
    episodes: int = 100,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    step: int | str | None = None,
    video: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Evaluate a run's agent on whole episodes, greedy and sampled, and append the result to <run>/eval.jsonl.

    The environment is the run's own with the keys of `env.evaluation` in place, as in evaluations while it trained.

    seed: root of the evaluation's own streams; None: one that follows from the run's seed
    overrides: `env.*` keys, such as another level, that leave the spaces as they are, `device` and
        `evaluation.max_steps`; they win over `env.evaluation`
    step: which checkpoint, or "best" for the agent of the best evaluation; None: the newest intact one
    video: also write an animation of one greedy episode, <run>/videos/step_<n>.gif
    trust: take the run as one's own, whoever made it (`stored_config`)
    """
    command = f"rlmem eval {shell(run_dir)} env.level=medium"
    refuse_others(overrides, ACCEPTED, "cannot be evaluated differently; evaluation accepts", command)
    trained = stored_config(run_dir, trust=trust)
    config, values = apply(trained, overrides), trained.values
    parts = assemble(Config(values | {"device": config.values["device"]}, trained.choices, ()), num_envs=1)
    checkpoint = agent_state(run_dir, step)
    with fitting(run_dir):
        parts.agent.load_state_dict(checkpoint["agent"])
    keys = [override.lstrip("+").partition("=")[0].split(".") for override in overrides]
    given = {key[1] for key in keys if key[0] == "env"}
    env = make_evaluation_env(config, min(episodes, EVAL_ENVS), given)
    require_same_spaces(config, parts.env, env, " ".join(overrides))
    if video and not parts.algo.acts:
        raise UserError(
            f"video=true: nothing acts in a run of algo={config.choices['algo']}; e.g. rlmem eval {shell(run_dir)}"
        )
    # A root of its own: these are not the episodes that were played during training.
    seed = Streams(values["seed"]).int("rlmem eval") if seed is None else seed
    taken, most = checkpoint["step"], max_steps(config.values)
    film = {}
    with one_thread():
        if video:  # first, since it may turn out that this environment cannot be drawn
            path = run_dir / "videos" / f"step_{taken}.gif"
            with closing(Watched(make_evaluation_env(config, 1, given))) as watched:
                evaluate(parts.agent, watched, 1, True, Streams(seed), parts.device, min(most or LONGEST, LONGEST))
                write_gif(watched.frames, path, watched.metadata.get("render_fps", 5))
            film = {"video": str(path), "video_steps": len(watched.frames) - 1, "video_whole": not watched.cut}
        parts.algo.prepare_evaluation(parts.streams, parts.device)
        exploration = parts.algo.explore(values["total_steps"], values["total_steps"])
        request = Request(episodes, Streams(seed), parts.device, most, print, exploration)
        results = parts.algo.evaluate(parts.agent, env, request)
    env.close()
    parts.env.close()
    row = {
        "run": str(run_dir),
        "step": taken,
        "episodes": episodes,
        "seed": seed,
        "env": evaluation_node(config, given),
        **results,
        **film,
    }
    try:
        with open(run_dir / "eval.jsonl", "a", encoding="utf-8") as file:
            file.write(dumps(row) + "\n")
    except OSError as error:
        print(f"the result is not kept: {run_dir / 'eval.jsonl'} cannot be written ({error.strerror})")
    return row
