"""Clusters of a memory's outputs by the true state of the environment."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.loaded import Keeper, LoadedRun
from rlmem.analysis.output import Result, beside_null
from rlmem.config.messages import mistake
from rlmem.core.errors import UserError
from rlmem.core.types import Batch
from rlmem.record.figures import COLOURS, INK, figure

TERMINAL = "T"
"""The label of slots whose true state is terminal."""
MARKERS = "o^sDv"


def measure(run: LoadedRun, *, episodes: int = 100, points: int = 2000, perplexity: float = 30.0) -> Result:
    """t-SNE and silhouette of the memory's outputs by true state (Lu et al. 2024, arXiv:2405.17358, fig. 3, table 8).

    The points are the outputs of the critic's memory at every acted slot of greedy episodes. The silhouette uses the
    Euclidean distance of at most `points` raw outputs, drawn at random, and is computed without the terminal slots and
    with them as a class T. States that occur only once are left out. The null is the silhouette of the same memory
    before it learnt, at the same slots. t-SNE (van der Maaten and Hinton 2008) is initialised with principal
    components.

    points: outputs that are drawn, at most
    perplexity: perplexity of t-SNE
    """
    from sklearn.manifold import TSNE

    name, states = run.config.choices["env"], getattr(run.parts.env.unwrapped, "label_names", ())
    if not states:
        problem = "does not tell its true state (an environment does by `labels()` and `label_names`)"
        raise mistake(f"env={name}", problem, example="a run with env=parity")
    if not 0 < perplexity < np.inf:
        raise UserError(f"perplexity={perplexity} is no number of neighbours; e.g. --perplexity 30")
    played, labels = collect(run, episodes)
    by_agent = run.with_null(
        lambda agent: sample(outputs(agent, played), np.array(states)[labels], points, run.seed),
    )
    features, names = by_agent["trained"]
    inner = names != TERMINAL

    def silhouettes(of: Any) -> dict[str, float]:
        return {"silhouette": silhouette(of[inner], names[inner]), "silhouette_with_terminal": silhouette(of, names)}

    scores = {name: silhouettes(of) for name, (of, _) in by_agent.items()}
    metrics = {
        **beside_null(scores, scores["trained"]),
        "points": float(inner.sum()),
        "points_with_terminal": float(len(names)),
        "states": float(len(set(names[inner]))),
    }
    fitting, init = min(perplexity, (len(features) - 1) / 3), "pca" if features.shape[1] > 1 else "random"
    places = TSNE(perplexity=fitting, init=init, random_state=run.seed % 2**32).fit_transform(features)
    rows = [{"x": float(x), "y": float(y), "state": n} for (x, y), n in zip(places, names, strict=True)]
    about = {"episodes": episodes, "perplexity": perplexity, "states": sorted(set(names))}
    title = f"{run.config.choices['memory']} on {name}: silhouette {metrics['silhouette']:.2f}"
    if "untrained" in by_agent:
        title += f" (untrained {metrics['silhouette_untrained']:.2f})"
    return Result(metrics, rows, {"picture": picture(places, names, title)}, about, {"features": features})


def collect(run: LoadedRun, episodes: int) -> tuple[Batch, NDArray[np.int64]]:
    """Slots [N, S] of the run's episodes, and the labels [n] of the acted ones."""
    labels: list[NDArray[np.int64]] = []
    batch = run.play(episodes, partial(Keeper, look=lambda env: env.labels(), records=labels)).batch
    return batch, np.stack(labels, 1)[batch.mask.numpy()]


@torch.no_grad()
def outputs(agent: Agent, batch: Batch) -> NDArray[np.float32]:
    """The outputs [n, H] of the critic's memory at all acted slots. Raises UserError if they are not finite."""
    trunk = agent.trunks.critic
    y, _ = trunk.memory(trunk.encoder(*batch.inputs), trunk.initial_state(batch.shape[0]), batch.start)
    hidden = y.numpy()[batch.mask.numpy()]
    if not np.isfinite(hidden).all():
        raise UserError("the memory's outputs are not finite; e.g. --step best")
    return hidden


def sample(features: Any, names: Any, points: int, seed: int) -> tuple[Any, Any]:
    """Draw at most `points` points, leaving out names that occur only once. Raises UserError if one name is left."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(names))[:points])
    features, names = features[chosen], names[chosen]
    distinct, count = np.unique(names, return_counts=True)
    often = np.isin(names, distinct[count > 1])
    if len(set(names[often]) - {TERMINAL}) < 2:
        raise UserError("fewer than two true states were seen; e.g. --episodes 100")
    return features[often], names[often]


def silhouette(features: Any, names: Any) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(features, names))


def picture(places: Any, names: Any, title: str) -> Any:
    """The places, each state with a colour and a marker of its own."""
    drawing, axes = figure(5.4)
    panel = axes[0, 0]
    inner = sorted(set(names) - {TERMINAL})
    looks = {name: (COLOURS[i % 6], MARKERS[i // 6 % len(MARKERS)]) for i, name in enumerate(inner)}
    for name, (colour, marker) in {**looks, TERMINAL: (INK, "x")}.items():
        if (of := names == name).any():
            panel.scatter(*places[of].T, s=14, color=colour, marker=marker, label=name, alpha=0.75, linewidths=0.8)
    panel.set(title=title, xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
    panel.legend(title="true state", loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=4, markerscale=1.6)
    return drawing
