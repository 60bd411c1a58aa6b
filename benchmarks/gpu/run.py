"""Everything that a GPU must show: tests, kernels, training (`make gpu`).

    python benchmarks/gpu/run.py [PART ...] [--json PATH] [--again] [--dry]

Each part runs in a process of its own, for at most eight minutes, and its numbers and verdicts are added to the file,
so that several calls can share the work: a part that the file has from the same commit is not measured again. The
machine needs no registry: what is missing is named, with the commands that bring it. Exit code 1 if a part failed or
missed a goal; a dry run has no goals, it shows that every part works.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
MINUTES = 8
UNUSED = ("tensorboard", "wandb", "pybullet", "pybullet-envs-gymnasium")
"""Dependencies that no part needs."""
USED = ("pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "sb3-contrib", "stable-baselines3", "matplotlib")
"""What the parts need beyond the dependencies."""
INDIRECT = ("antlr4-python3-runtime", "farama-notifications", "pydantic-core", "typing-inspection", "cloudpickle")
"""What the dependencies need that a machine with torch may lack."""


def missing() -> list[str]:
    """The distributions that are not installed here."""
    text = re.search(r"^dependencies = \[(.*?)^\]", Path(ROOT, "pyproject.toml").read_text(), re.M | re.S)
    if text is None:
        raise RuntimeError("pyproject.toml: no dependencies found")
    names = [name for name in re.findall(r'^\s*"([\w-]+)', text[1], re.M) if name not in UNUSED]
    return [name for name in (*names, *INDIRECT, *USED) if not is_installed(name)]


def is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def how_to_bring(names: list[str]) -> str:
    """What to do about distributions that are missing, on a machine that reaches no registry."""
    python = ".".join(map(str, sys.version_info[:2]))
    return (
        f"make gpu: {sys.executable} lacks {', '.join(names)}\n"
        f"  where there is a registry, with Python {python}: "
        f"python -m pip wheel -c constraints.txt --no-deps -w wheels {' '.join(names)}\n"
        f"  here: {shlex.quote(sys.executable)} -m pip install --no-index --no-deps wheels/*.whl"
    )


def measure(name: str, dry: bool) -> dict[str, Any]:
    """The numbers and verdicts of a part, or {"error": why}."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "part.json")
        command = [
            sys.executable,
            str(Path(__file__).with_name("parts.py")),
            name,
            str(file),
            *(["--dry"] if dry else []),
        ]
        paths = [str(ROOT), str(ROOT / "envs"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, timeout=60 * MINUTES, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return {"error": f"did not end within {MINUTES} minutes"}
        if done.returncode or not file.exists():
            return {"error": done.stderr.strip()[-2000:] or f"exit code {done.returncode}"}
        return dict(json.loads(file.read_text()))


def lines(name: str, part: dict[str, Any], dry: bool) -> list[str]:
    """A line for each verdict of a part; a dry run has no goals."""
    if "error" in part:
        return [f"{'FAILED':<8}{name}: {part['error'].splitlines()[-1]}"]
    found = []
    for it in part["verdicts"]:
        number = "not measured" if it["value"] is None else f"{it['value']:,.3g} {it['unit']}".strip()
        goal = "" if dry or not it["goal"] else f" (goal: at {'most' if it['at_most'] else 'least'} {it['goal']:g})"
        judged = "" if dry or it["held"] is None else "reached" if it["held"] else "MISSED"
        found.append(f"{judged:<8}{it['what']}: {number}{goal}")
    return found


def commit() -> str:
    """The commit that is measured, with a mark if files differ from it; "unknown" outside a repository."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"


def holds(part: dict[str, Any], dry: bool) -> bool:
    """Whether a part was measured and, unless the run is dry, reached its goals."""
    return "error" not in part and (dry or all(it["held"] is not False for it in part["verdicts"]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--json", type=Path, help="default: benchmarks/gpu/NAME-OF-THE-GPU.json; dry: none")
    parser.add_argument("--again", action="store_true", help="measure what the file has, too")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on the CPU if there is no GPU")
    options = parser.parse_args(arguments)
    if names := missing():
        print(how_to_bring(names), file=sys.stderr)
        return 2
    sys.path[:0] = [str(ROOT), str(ROOT / "envs"), str(Path(__file__).parent)]
    import torch
    from parts import PARTS

    from rlmem.bench.skeleton import machine

    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; accepted: {', '.join(PARTS)}")
    if not (options.dry or torch.cuda.is_available()):
        print("make gpu: no CUDA device is available here; e.g. make gpu DRY=1", file=sys.stderr)
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = machine(device) | {"commit": commit()}
    slug = re.sub(r"\W+", "-", about["device"].lower()).strip("-")
    path = options.json or (None if options.dry else Path(__file__).with_name(f"{slug}.json"))
    result: dict[str, Any] = {"machine": about, "parts": {}}
    if path is not None and path.exists() and not options.again:
        before = json.loads(path.read_text())
        result["parts"] = {name: part for name, part in before["parts"].items() if part["commit"] == about["commit"]}
    for name in options.parts or PARTS:
        part = result["parts"].get(name)
        if part is None or "error" in part:
            began = perf_counter()
            part = result["parts"][name] = measure(name, options.dry) | {"commit": about["commit"]}
            part["seconds"] = round(perf_counter() - began, 1)
            if path is not None:
                path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name} ({part['seconds']:.0f} s)", *lines(name, part, options.dry), sep="\n  ", flush=True)
    return 0 if all(holds(part, options.dry) for part in result["parts"].values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
