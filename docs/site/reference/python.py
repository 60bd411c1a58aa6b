"""The pages of the Python API, which mkdocstrings fills in."""

import rlmem
from reference.markdown import Page, sections

UP = "../../"
MEMORY = [
    "rlmem.memory.base.Memory",
    "rlmem.memory.recurrence.LinearRecurrence",
    "rlmem.memory.recurrence.Memoroid",
    "rlmem.memory.base.RecurrentCell",
    "rlmem.memory.window.Window",
]
ENVIRONMENTS = [
    "rlmem_envs.core.batched.BatchedEnv",
    "rlmem_envs.core.task.Task",
    "rlmem_envs.core.known.Scores",
    "rlmem_envs.core.known.Demand",
    "rlmem_envs.core.open_loop.OpenLoopEnv",
    "rlmem_envs.registration.make",
    "rlmem_envs.vector.vectorise",
]
DATA = ["rlmem.core.types.Batch", "rlmem.algos.base.Algorithm"]


def pages() -> dict[str, Page]:
    offered = [name for name in dir(rlmem) if not name.startswith("__")]
    functions = [name for name in offered if name[0].islower()]
    classes = [name for name in offered if name[0].isupper()]
    return {
        "reference/python/index.md": page(
            "rlmem", f"What `import rlmem` offers. [Use rlmem from Python]({UP}library.md) shows it at work.",
            [f"rlmem.{name}" for name in (*functions, *classes)], "rlmem/__init__.py",
        ),
        "reference/python/memory.md": page(
            "Memory bases", f"What a memory derives from. [Write your own]({UP}memory.md#your-own) has an example.",
            MEMORY, "rlmem/memory/base.py",
        ),
        "reference/python/environments.md": page(
            "Environment bases", f"What a task derives from. [Contribute]({UP}contributing.md#an-environment) has one.",
            ENVIRONMENTS, "envs/rlmem_envs/core/task.py",
        ),
        "reference/python/learning.md": page(
            "Batches and algorithms", f"What an algorithm reads and is. [The slot rule]({UP}design.md#the-slot-rule).",
            DATA, "rlmem/algos/base.py",
        ),
    }  # fmt: skip


def page(title: str, said: str, names: list[str], source: str) -> Page:
    return Page(sections(f"# {title}", said, *(f"::: {name}" for name in names)), source)
