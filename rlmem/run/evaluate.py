"""Evaluating the agent of a run again: other episodes, other levels, a video."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlmem.acting.collector import one_thread
from rlmem.acting.evaluate import Request
from rlmem.acting.film import film_episode
from rlmem.acting.workers import closing
from rlmem.config.compose import apply
from rlmem.config.messages import shell
from rlmem.core.errors import UserError
from rlmem.core.received import dumps
from rlmem.core.seeding import Streams
from rlmem.run.assemble import assemble_trained
from rlmem.run.nodes import EVAL_ENVS, evaluation_node, make_evaluation_env, require_same_spaces
from rlmem.run.stored import refuse_others, stored_config

ACCEPTED = ("env.*", "wrapper.*", "device", "evaluation.max_steps")
"""Patterns of the keys that an evaluation may override."""


def evaluate_run(
    run_dir: Path,
    episodes: int = 100,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    step: int | str | None = None,
    video: bool = False,
    trust: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Evaluate a run's agent on whole episodes, greedy and sampled, and append the result to <run>/eval.jsonl.

    The environment is that of the run's evaluations while it trained: `env` with the keys of `env.evaluation`.

    run_dir: the run directory
    episodes: how many episodes of each kind
    seed: root of the evaluation's own streams; None: derived from the run's seed
    overrides: `key=value` of ACCEPTED keys, which win over `env.evaluation` and must not change the spaces
    step: which checkpoint, or "best" for the agent of the best evaluation; None: the newest intact one
    video: also write an animation of one greedy episode, <run>/videos/eval_<step>.gif
    trust: accept a configuration that another user wrote or edited (`stored_config`)
    say: called with a line on the progress of a long evaluation, on episodes that were cut, and on a full disk

    Returns the row that is written. Raises UserError.
    """
    command = f"rlmem eval {shell(run_dir)} env.level=medium"
    refuse_others(overrides, ACCEPTED, "cannot be evaluated differently; evaluation accepts", command)
    trained = stored_config(run_dir, trust=trust)
    config = apply(trained, overrides)
    there = replace(trained, values=trained.values | {"device": config.settings.device})
    keys = [override.lstrip("+").partition("=")[0].split(".") for override in overrides]
    replaced = {key[1] for key in keys if key[0] == "env"}
    try:
        parts, checkpoint = assemble_trained(there, run_dir, step)
    except UserError:
        if not replaced:
            raise
        # Its own environment cannot be made here, as one whose id a script registered: the other's spaces must fit.
        other = replace(there, values=there.values | {"env": config.values["env"]})
        parts, checkpoint = assemble_trained(other, run_dir, step, " ".join(overrides))
    env = make_evaluation_env(config, min(episodes, EVAL_ENVS), replaced)
    require_same_spaces(config, parts.env, env, " ".join(overrides))
    if video and not parts.algo.acts:
        problem = f"video=true: nothing acts in a run of algo={config.choices['algo']}"
        raise UserError(f"{problem}; e.g. rlmem eval {shell(run_dir)}")
    # A root of its own: these are not the episodes that were played during training.
    seed = Streams(trained.settings.seed).int("rlmem eval") if seed is None else seed
    max_steps, film = config.settings.evaluation.max_steps, {}
    if video:  # first, since it may turn out that this environment cannot be drawn
        path = run_dir / "videos" / f"eval_{checkpoint['step']}.gif"  # those of training are another episode's
        one = make_evaluation_env(config, 1, replaced)
        with one_thread():
            watched = film_episode(parts.agent, one, Streams(seed), parts.device, max_steps, path)
        film = {"video": str(path), "video_steps": watched.steps, "video_whole": not watched.cut}
    with closing(parts.env), closing(env), one_thread():
        parts.algo.prepare_evaluation(parts.streams, parts.device)
        request = Request(episodes, Streams(seed), parts.device, max_steps, say, parts.exploration)
        results = parts.algo.evaluate(parts.agent, env, request)
    row = {"run": str(run_dir), "step": checkpoint["step"], "episodes": episodes, "seed": seed}
    row |= {"env": evaluation_node(config, replaced)} | results | film
    try:
        with open(run_dir / "eval.jsonl", "a", encoding="utf-8") as file:
            file.write(dumps(row) + "\n")
    except OSError as error:
        say(f"the result is not kept: {run_dir / 'eval.jsonl'} cannot be written ({error.strerror})")
    return row
