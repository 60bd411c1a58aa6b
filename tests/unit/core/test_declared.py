"""Options that are read from files: of functions, whose keywords are flags, and of classes, whose fields are."""

import argparse

import pytest

from rlmem.core.declared import PLAIN, REQUIRED, add_options, read

FILE = '''"""The purpose.

More.
"""


def measure(run: Run | None, *, episodes: int = 3, mode: Literal["a", "b"] = "a", out: Path, near: float = NEAR):
    """Describe it: a colon is no option.

    episodes E: how many,
        100 % of them
    mode -m: which
    not_an_option: text

    Examples:
        one --mode b
    """


class Bench:
    """Fields."""

    name = "none"
    lengths: Sequence[int] = (1, 2)
    peer: bool = True
'''


@pytest.fixture
def file(tmp_path):
    (path := tmp_path / "declared.py").write_text(FILE)
    return path


def test_arguments_and_their_docstring_are_read_without_an_import(file):
    declared = read(file, "measure")
    assert (declared.purpose, declared.description) == ("The purpose.", "Describe it: a colon is no option.")
    assert declared.examples == ("one --mode b",)
    run, episodes, mode, out, near = declared.options
    assert (run.kind, run.nullable, run.default, run.is_flag) == ("Run", True, REQUIRED, False)
    assert (episodes.default, episodes.metavar, episodes.meaning) == (3, "E", "how many, 100 % of them")
    assert (mode.metavar, out.default, near.default) == ("-m", REQUIRED, None)
    assert read(file, "nothing") is None


def test_flags_are_made_of_options(file):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser, read(file, "measure").options[1:], PLAIN)
    parsed = vars(parser.parse_args(["-m", "b", "--out", "x"]))
    assert parsed | {"out": str(parsed["out"])} == {"episodes": 3, "mode": "b", "out": "x", "near": None}
    assert "how many, 100 % of them (3)" in " ".join(parser.format_help().split())
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["--mode", "c", "--out", "x"])


def test_the_fields_of_a_class_are_options(file):
    lengths, peer = read(file, "Bench").options
    assert (lengths.kind, lengths.default, peer.default) == ("Sequence[int]", (1, 2), True)
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_options(parser, [lengths, peer], PLAIN)
    assert vars(parser.parse_args(["--lengths", "4,5", "--no-peer"])) == {"lengths": (4, 5), "peer": False}
    assert vars(parser.parse_args([])) == {}
