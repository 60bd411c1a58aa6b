"""A wrong parameter of a task is refused by its name, its value and what is accepted."""

import pytest
import yaml
from helpers import ROOT
from rlmem_envs.registration import make

REFUSED = yaml.safe_load((ROOT / "tests/data/refused_tasks.yaml").read_text())


def test_a_wrong_parameter_is_named_with_what_is_accepted():
    for task, params, accepted in REFUSED:
        name, value = next(iter(params.items()))
        with pytest.raises(ValueError, match=name) as refusal:
            make(task, 2, **params)
        message = str(refusal.value)
        value = f"{value:g}" if value != value else value if isinstance(value, str) else repr(value)
        assert value in message and accepted in message, (task, params, message)
        assert "\n" not in message


@pytest.mark.parametrize("task", ["CartPole", "Pendulum", "PositionOnlyCartPole", "PositionOnlyPendulum"])
def test_what_the_rules_pass_to_their_physics_is_no_parameter(task):
    for name, value in (("pay", 2.0), ("sight", "full"), ("most_steps", 9)):
        with pytest.raises(TypeError):
            make(task, 1, **{name: value})
    with pytest.raises(TypeError, match=r"no parameter `pay`; it has: (?!.*\b(sight|most_steps|params)\b)"):
        make(task, 1, pay=2.0)
