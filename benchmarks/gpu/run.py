"""Test and measure rlmem on a GPU (`make gpu`).

    python benchmarks/gpu/run.py [PART ...] [--json PATH] [--again] [--dry]

Each part runs in a process of its own, for at most eight minutes, and its numbers and verdicts are added to the file,
so that several calls can share the work: a part that the file has from the same commit, device and version of torch is
not measured again. Exit code 1 if a part failed or missed a goal; a
dry run has no goals, it shows that every part works.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 480.0
"""The longest time of a part."""


def measured(name: str, dry: bool, seconds: float = SECONDS) -> dict[str, Any]:
    """The numbers and verdicts of a part, which runs in a process of its own, and the `seconds` that it took.

    If it failed, there is an `error` as well.
    """
    script, began = str(Path(__file__).with_name("parts.py")), perf_counter()
    paths = [str(ROOT), str(ROOT / "envs"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "part.json")
        command = [sys.executable, script, name, str(file), *(["--dry"] if dry else [])]
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)
        part: dict[str, Any] = {}
        try:
            _, stderr = process.communicate(timeout=seconds)
            if process.returncode or not file.exists():
                part["error"] = stderr.strip()[-2000:] or f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            part["error"] = f"did not end within {seconds:g} seconds"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
                process.communicate()
        numbers = json.loads(file.read_text()) if file.exists() else {}
    return numbers | part | {"seconds": round(perf_counter() - began, 1)}


def lines(name: str, part: dict[str, Any], dry: bool) -> list[str]:
    """A line for each verdict of a part; a dry run has no goals."""
    if "error" in part:
        return [f"{'FAILED':<8}{name}: {part['error'].splitlines()[-1]}"]
    text = []
    for it in part["verdicts"]:
        value, note = it["value"], f" ({it['note']})" if it["note"] else ""
        number = "not measured" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        unit = f" {it['unit']}" if it["unit"] and value is not None else ""
        told = dry or it["goal"] is None
        goal = "" if told else f", goal at {'most' if it['at_most'] else 'least'} {it['goal']:g}"
        judged = "MISSED" if value is None else "" if told else "reached" if it["held"] else "MISSED"
        text.append(f"{judged:<8}{it['what']}: {number}{unit}{goal}{note}")
    return text


def holds(part: dict[str, Any], dry: bool) -> bool:
    """Whether everything of a part was measured and, unless the run is dry, reached its goal."""
    judged = part.get("verdicts", [])
    return "error" not in part and all(it["value"] is not None and (dry or it["held"] is not False) for it in judged)


def commit() -> str | None:
    """The commit that is measured; None if files differ from it, those of results apart, or outside a repository."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    changed = [*git, "status", "--porcelain", "--", ".", ":!benchmarks/gpu/*.json"]
    clean = subprocess.run(changed, capture_output=True, text=True)
    return head.stdout.strip() if head.returncode == clean.returncode == 0 and not clean.stdout.strip() else None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--json", type=Path, help="default: benchmarks/gpu/NAME-OF-THE-GPU.json; dry: none")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a part may take")
    parser.add_argument("--again", action="store_true", help="measure what the file has, too")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on the CPU if there is no GPU")
    options = parser.parse_args(arguments)
    sys.path[:0] = [str(ROOT), str(ROOT / "envs"), str(Path(__file__).parent)]
    try:
        import pytest  # noqa: F401  (the part `tests` needs it)
        import torch
        from parts import PARTS

        from rlmem.evidence.bench.skeleton import machine
        from rlmem.record.rundir import write_atomically
    except ImportError as error:
        lacks = f"{sys.executable} cannot import {error.name}"
        print(f"make gpu: {lacks}; e.g. {sys.executable} -m pip install -e '.[test]'", file=sys.stderr)
        return 2

    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; accepted: {', '.join(PARTS)}")
    if not (options.dry or torch.cuda.is_available()):
        print("make gpu: no CUDA device is available here; e.g. make gpu DRY=1", file=sys.stderr)
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = machine(device)
    slug = re.sub(r"\W+", "-", about["device"].lower()).strip("-")
    path = options.json or (None if options.dry else Path(__file__).with_name(f"{slug}.json"))
    kind = {"commit": commit(), "dry": options.dry, "device": about["device"], "torch": about["torch"]}
    result: dict[str, Any] = {"parts": {}}
    if path is not None and path.exists():
        result = json.loads(path.read_text())

    def is_known(name: str) -> bool:
        part = result["parts"].get(name, {})
        return kind["commit"] is not None and part.get("of") == kind and "error" not in part

    asked = options.parts or [*PARTS]
    for name in asked:
        if options.again or not is_known(name):
            result["parts"][name] = measured(name, options.dry, options.seconds) | {"of": kind, "machine": about}
            if path is not None:
                write_atomically(path, json.dumps(result, indent=1) + "\n")
        part = result["parts"][name]
        print(f"{name} ({part['seconds']:.0f} s)", *lines(name, part, options.dry), sep="\n  ", flush=True)
    return 0 if all(holds(result["parts"][name], options.dry) for name in asked) else 1


if __name__ == "__main__":
    raise SystemExit(main())
