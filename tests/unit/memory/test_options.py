"""Every value of every option of a memory keeps the contract, or says which property it breaks as published."""

import pytest
from helpers import fast_only, make_memory, variants

from rlmem.conformance import PROPERTIES, check
from rlmem.core.errors import UserError

NEEDS_MORE = {"skip=identity", "filters=parallel", "form=linear"}
"""Values that are refused with a sentence until another option is given, too."""

LONG = {"calibration=neural_theta": 4000}
"""Slots through which gradients are read where a property breaks only in longer rows than 100."""

DECIDING = (
    "step_equals_forward", "starts_separate_episodes", "no_gradient_across_start", "tape_equals_segments",
    "engines_agree", "finite_gradients",
)  # fmt: skip
"""The properties that a branch in a memory breaks first; the slow tests ask for all of them."""


PAPERS = {"ffm", "shm", "lru", "lprnn", "gpt", "gtrxl", "gru", "s6"}
"""Memories that papers train with these options; the other memories' are slow."""


@pytest.mark.parametrize(("name", "option"), fast_only(lambda case: case[0] in PAPERS, variants()), ids=str)
@pytest.mark.parametrize(
    "properties", [DECIDING, pytest.param(tuple(PROPERTIES), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_every_option_of_every_memory_keeps_the_contract(name, option, properties):
    ((key, value),) = option.items()
    if f"{key}={value}" in NEEDS_MORE:
        with pytest.raises((UserError, ValueError), match=r"give|needs|e\.g\."):
            make_memory(name, 6, **option)
        return
    long = LONG.get(f"{key}={value}", 100)
    results = check(lambda: make_memory(name, 6, **option), slots=24, long=(long,), only=properties)
    assert [str(result) for result in results if not result.ok] == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ffm", {"skip": "identity", "hidden_size": 6}),
        ("tcn", {"form": "linear", "num_layers": 1}),
        ("gated_deltaproduct", {"conv_size": 4}),
        ("block", {"gate": True, "norm": "post"}),
    ],
    ids=str,
)
def test_and_so_do_those_that_need_another_one(name, options):
    results = check(lambda: make_memory(name, 6, **options), slots=24, long=(100,))
    assert [str(result) for result in results if not result.ok] == []
