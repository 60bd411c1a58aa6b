"""Old names of modules and classes still work: in programs of others, and in stored configurations."""

import subprocess
import sys
from importlib import import_module
from pkgutil import resolve_name
from types import ModuleType

import pytest

from rlmem.agents.encoder import Plain
from rlmem.config.targets import locate
from rlmem.core.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_means_the_present_one(old):
    present, named = resolve_name(MOVED[old]), resolve_name(old)
    if not isinstance(present, ModuleType):
        assert named is present
        return
    names = [name for name in dir(present) if not name.startswith("__") and f"{old}.{name}" not in MOVED]
    assert all(getattr(named, name) is getattr(present, name) for name in names)


def test_a_class_is_found_by_its_old_name():
    assert locate("rlmem.nets.plain.Plain") is Plain


def test_a_program_that_imports_old_names_first_gets_the_same_classes():
    program = "from rlmem.types import Batch; from rlmem.replay.buffer import Replay; import rlmem.core.types as t"
    done = subprocess.run([sys.executable, "-c", f"{program}; assert Batch is t.Batch"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_never_was_there_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        import_module("rlmem.nets.nothing")
