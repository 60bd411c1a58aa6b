"""`rlmem check`: measure whether a memory keeps the contract of memories."""

import contextlib

from rlmem.commands.toolkit import Count, Flag, Overrides, stdout_to_stderr
from rlmem.core.command import show
from rlmem.core.received import dumps

PRINTS = True


def run(overrides: Overrides, *, input_size: Count = 6, json: Flag = False, debug: bool = False) -> int:
    """Measure whether a memory keeps the contract of memories (docs/design.md): resets, nothing from the future,
    finite gradients, ... Exit code 1 if a property fails that no published option declares.
    memory=module.Class stands for a class of your own, with the keys of its constructor.

    overrides: as for train; only memory, seed and device count
    input_size D: features that it reads
    json: print JSON only

    Examples:
        memory=gru
        memory=ffm memory.hidden_size=32 memory.engine=loop --json
        memory=ffm memory.engine=triton device=cuda
        memory=leaky.Leaky memory.hidden_size=16
    """
    from rlmem.config.compose import load

    config = load(overrides)
    from rlmem.acting.collector import one_thread
    from rlmem.conformance import facts, results
    from rlmem.core.seeding import Streams
    from rlmem.run.assemble import choose_device
    from rlmem.run.nodes import build_memory

    name, outcomes = config.choices["memory"], []
    with one_thread(), stdout_to_stderr() if json else contextlib.nullcontext():
        with Streams(config.settings.seed).module_init("init"):
            device = choose_device(config.settings.device)
            memory = build_memory(f"memory={name}", config.values["memory"], input_size, device)
        head = {"memory": name} | facts(memory)
        if not json:
            scan = f", {head['engine']} scan" if head["engine"] else ""
            size = f"{head['parameters']:,} parameters, state of {head['state']:,} numbers{scan}"
            show(f"memory={name}: {head['class']}, {size}")
        for result in results(lambda: memory, reraise=debug):
            outcomes.append(result)
            if not json:
                show(result)
    ok = all(result.ok for result in outcomes)
    if json:
        show(dumps(head | {"ok": ok, "properties": [result.as_json() for result in outcomes]}, indent=2))
    return 0 if ok else 1
