"""Decision processes as tables: files in Cassandra's format, exact beliefs, and plans on them."""

import itertools
import re

import numpy as np
import pytest
import yaml
from helpers import ROOT
from rlmem_envs.pomdp.cassandra import parse
from rlmem_envs.pomdp.models import compass_world, hallway, tiger
from rlmem_envs.pomdp.planning import point_based, qmdp
from rlmem_envs.pomdp.tables import POMDP

from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.run.nodes import make_env

REFUSED = yaml.safe_load((ROOT / "tests/data/refused_models.yaml").read_text())["decision_processes"]
LONG = """# the tiger problem, entry by entry
discount: 0.95
values: cost
states: 2
actions: listen left right
observations: 2
start: 0.5 0.5
T: * : * : * 0.5
T: 0 : 0 : 0 : 1.0
T: listen : 0 : 1 0.0
T: 0 : 1
0 1
O: *
uniform
O: listen : 0 : 0 0.85
O: listen : 0 : 1 0.15
O: listen : 1
0.15 0.85
R: 0 : * : * : * 1
R: left : 0 : 0 : * 100
R: left : 0 : 1
100 100
R: left : 1
-10 -10
-10 -10
R: right : 0 : * : * -1e1
R: right : 1 : * : * 100
"""


def test_the_same_process_is_read_from_every_form_of_its_entries():
    ours, long = tiger(), parse(LONG, "long.POMDP")
    for name in ("start", "T", "Z", "R"):
        np.testing.assert_allclose(getattr(long, name), getattr(ours, name), err_msg=name)
    assert ours.discount == long.discount == 0.95 and long.states == ("0", "1")
    assert ours.states == ("tiger-left", "tiger-right") and ours.actions == ("listen", "open-left", "open-right")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("start: b", [0, 1, 0]),
        ("start: uniform", [1 / 3] * 3),
        ("start include: a c", [0.5, 0, 0.5]),
        ("start exclude: 0", [0, 0.5, 0.5]),
        ("start:\n0.2 0.3\n0.5", [0.2, 0.3, 0.5]),
        ("", [1 / 3] * 3),
    ],
)
def test_every_form_of_a_start(start, expected):
    head, tail = "states: a b c\nactions: 1\nobservations: 1", "O: * uniform\nR: * : * : * : * 2"
    given = f"{head}\n{start}\nT: * identity\nT: 0 : c\nreset\n{tail}"
    model = parse(given, "x")
    np.testing.assert_allclose(model.start, expected)
    np.testing.assert_allclose(model.T[0, 2], expected)
    assert model.pay.tolist() == [[2, 2, 2]]


def test_what_is_not_in_the_format_is_said_with_its_line():
    for old, new, said in REFUSED:
        assert old in LONG
        with pytest.raises(ValueError, match=re.escape(said)):
            parse(LONG.replace(old, new.replace("NINES", "9" * 5000)), "x")


def test_what_a_file_rounds_goes_to_no_state_that_cannot_be():
    model = parse(
        "states: 4\nactions: 1\nobservations: 1\nT: *\n" + 4 * "0.33331 0.33331 0.33331 0\n" + "O: * uniform", "x"
    )
    np.testing.assert_allclose(model.T, [[[1 / 3, 1 / 3, 1 / 3, 0]] * 4], rtol=1e-12)
    assert abs(model.T.sum(-1) - 1).max() < 1e-15


@pytest.mark.parametrize("model", [tiger(), hallway()], ids=["tiger", "hallway"])
def test_beliefs_are_those_of_bayes_rule_over_all_paths(model):
    """The chance of every path of three states that fits what was done and seen, summed up."""
    rng, S = np.random.default_rng(0), len(model.states)
    actions, state, seen = rng.integers(len(model.actions), size=2), rng.choice(S, p=model.start), []
    for action in actions:
        state = rng.choice(S, p=model.T[action, state])
        seen.append(rng.choice(len(model.observations), p=model.Z[action, state]))
    weight = np.zeros(S)
    for first, middle, last in itertools.product(range(S), repeat=3):
        if model.T[actions[0], first, middle] and model.T[actions[1], middle, last]:
            path = model.start[first] * model.T[actions[0], first, middle] * model.T[actions[1], middle, last]
            weight[last] += path * model.Z[actions[0], middle, seen[0]] * model.Z[actions[1], last, seen[1]]
    belief = model.start[None]
    for action, o in zip(actions, seen, strict=True):
        belief = model.after(belief, np.array([action]), np.array([o]))
    np.testing.assert_allclose(belief[0], weight / weight.sum(), atol=1e-12)


def test_the_tigers_plan_has_the_known_value_and_listens_until_it_is_sure():
    model = tiger()
    plan = point_based(model)
    assert plan.value(model.start[None])[0] == pytest.approx(
        19.371, abs=0.03
    )  # by exact solvers, at a discount of 0.95
    sure = np.array([[p, 1 - p] for p in (0.02, 0.15, 0.5, 0.85, 0.98)])
    assert plan.act(sure).tolist() == [1, 0, 0, 0, 2]
    assert qmdp(model).value(model.start[None])[0] > 100, "as if the tiger were seen from the next step on"


def test_hallway_is_what_its_rules_say():
    model = hallway()
    assert (len(model.states), len(model.actions), len(model.observations)) == (57, 5, 20)
    s = model.states.index
    forward, stay = model.actions.index("forward"), model.actions.index("stay")
    assert model.T[forward, s("0-8-s"), s("goal")] == pytest.approx(0.8)
    assert model.T[stay, s("0-3-e"), s("0-3-e")] == 1
    assert model.T[forward, s("0-0-n"), s("0-0-n")] == pytest.approx(0.85), "a wall, or it stayed"
    assert model.Z[0, s("1-4-s"), model.observations.index("second")] == 1
    assert model.Z[0, s("0-3-e"), model.observations.index("walls-0101")] == pytest.approx(0.9**2 * 0.95**2)
    assert model.ends.sum() == 1 and model.pay[forward, s("0-8-s")] == pytest.approx(0.8)


def test_compass_world_is_what_its_rules_say_and_its_plan_finds_the_spot():
    model = compass_world()
    s, seen = model.states.index, lambda state: model.observations[model.Z[0, model.states.index(state)].argmax()]
    assert len(model.states) == 256 and (model.T.max(-1) == 1).all(), "nothing moves by chance"
    assert [seen(f"0-0-{heading}") for heading in "nesw"] == ["orange", "white", "white", "green"]
    assert [seen(place) for place in ("7-3-s", "4-7-e", "4-0-w", "4-3-n")] == ["red", "yellow", "blue", "white"]
    forward, right, left = range(3)
    assert model.T[forward, s("3-0-n"), s("2-0-n")] == model.T[forward, s("0-5-n"), s("0-5-n")] == 1
    assert model.T[right, s("3-3-w"), s("3-3-n")] == model.T[left, s("3-3-n"), s("3-3-w")] == 1
    assert model.pay[left, s("0-0-n")] == 1 and model.pay[forward].max() == 1
    env = POMDP(128, "compass_world")
    env.reset(seed=0)
    won = np.zeros(128, bool)
    for _ in range(60):
        won |= env.step(env.oracle())[2]
    assert won.all()


def test_a_file_is_an_environment(tmp_path):
    path = tmp_path / "own.POMDP"
    path.write_text(LONG)
    env = make_env(load(["env=pomdp", f"env.file={path}", "env.ends=['1']"]), 4)
    obs, _ = env.reset(seed=0)
    assert obs.tolist() == [2] * 4 and env.single_observation_space.n == 3 and env.label_names == ("0", "1")
    _, reward, terminated, _, infos = env.step(np.ones(4, int))
    assert set(reward) <= {-100.0, 10.0} and (terminated == (env.labels() == 1)).all()
    assert terminated.any() and (infos["success"] == terminated).all()
    with pytest.raises(UserError, match=r"'9' is none of the states"):
        make_env(load(["env=pomdp", f"env.file={path}", "env.ends=['9']"]), 1)


def test_the_oracle_on_exact_beliefs_beats_one_as_if_the_state_were_seen_soon():
    scores = {}
    for planner in ("point_based", "qmdp"):
        env = POMDP(256, "hallway", planner=planner)
        env.reset(seed=0)
        won = np.zeros(256, bool)
        for _ in range(100):
            won |= env.step(env.oracle())[2]
        scores[planner] = won.mean()
    assert scores["point_based"] > 0.99 and scores["qmdp"] < 0.7


def test_luck_that_is_given_decides_every_step():
    """A first state, and where states and observations are picked, leave nothing to chance."""
    env = POMDP(2)
    luck = [[[0.0, 0.84], [0.0, 0.86], [0.4, 0.2]], [[0.0, 0.86], [0.0, 0.84], [0.6, 0.7]]]
    env.reset(seed=0, options={"hidden": {"hidden_state": [0, 0], "luck": luck}})
    seen = [env.step(np.array([action] * 2))[0].tolist() for action in (0, 0, 2)]
    assert seen == [[0, 1], [1, 0], [0, 1]] and env.labels().tolist() == [0, 1]
