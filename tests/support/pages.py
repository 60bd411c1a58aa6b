"""Code blocks and commands of the documents."""

import re
from dataclasses import dataclass
from pathlib import Path

from helpers import ROOT

BUDGET = "total_steps=256 env.num_envs=8 evaluation.every=null evaluation.episodes=4 threads=1"
SMALL = f"{BUDGET} algo.rollout_slots=16"
SMALL_REPLAY = f"{BUDGET} algo.random_steps=50 algo.learning_starts=150 algo.batch_size=60 algo.update_ratio=0.03"
SHRINK = {
    "train": SMALL,
    "resume": "total_steps=384",
    "eval": "--episodes=4",
    "push": "--episodes=4",
    "export": "--episodes=4",
}
"""What is appended to a command; later values win."""

FENCE = re.compile(r"(<!-- not run: .+? -->\n)?^```(\S*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it shows, and whether it is marked as not run."""

    document: str
    language: str
    file: str
    text: str
    skipped: bool


def blocks(document: str) -> list[Block]:
    found = FENCE.finditer((ROOT / document).read_text(encoding="utf-8"))
    return [Block(document, m[2], m[3], m[4], m[1] is not None) for m in found]


def commands(document: str) -> list[str]:
    """The `rlmem` lines of the sh blocks that are run, in order; a backslash joins lines, as in a shell."""
    shell = [b for b in blocks(document) if b.language == "sh" and not b.skipped]
    lines = [line for b in shell for line in re.sub(r"\\\n +", "", b.text).splitlines()]
    return [line for line in lines if line.startswith("rlmem ")]


def off_policy() -> set[str]:
    """The options of `algo` that learn from a replay, shipped and shown."""
    shipped = {path.stem: path.read_text() for path in (ROOT / "conf" / "algo").glob("*.yaml")}
    shown = {Path(b.file).stem: b.text for b in blocks("CONTRIBUTING.md") if "/algo/" in b.file}
    return {name for name, text in (shipped | shown).items() if "learning_starts:" in text or "[_off_policy]" in text}


def small(command: str) -> str:
    """The command on a small budget; one that only asks for information stays as it is."""
    command = re.sub(r"\s+#\s.*", "", command)
    verb = command.split()[1]
    if verb == "sweep" and command.split()[2].endswith(".yaml"):
        return f"{command} {SMALL}"
    if verb not in SHRINK or "--help" in command:
        return command
    algo = re.search(r" algo=(\w+)", command)
    if verb == "train" and algo and algo[1] in off_policy():
        return f"{command} {SMALL_REPLAY}"
    short = " algo.epochs=1" if verb == "train" and (not algo or algo[1].startswith("ppo")) else ""
    short += " evaluation.stop_at=null" if "evaluation.stop_at=" in command else ""
    return f"{command} {SHRINK[verb]}{short}"


def with_examples(document: str, folder: Path) -> Path:
    """The folder, which now holds nothing but the example files of the document."""
    for block in blocks(document):
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
    return folder
