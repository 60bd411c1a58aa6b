"""The tasks with dials, held to players and simulators of their own, which know nothing but the rule cards."""

import numpy as np
import pytest
from rlmem_envs.dials.color_cubes import ColorCubes
from rlmem_envs.dials.copy import Copy
from rlmem_envs.dials.endless_tmaze import FORWARD, LEFT, RIGHT, EndlessTMaze
from rlmem_envs.registration import make

from rlmem.config.compose import load
from rlmem.run.nodes import make_env

# A player reads an episode slot by slot, in plain Python, and returns its answer; None where nothing is asked.


def copy(symbols, **rest):
    held = []

    def read(seen):
        if seen < symbols:
            held.append(seen)
        return held.pop(0) if seen == symbols + 1 else None

    return read


def n_back(items, symbols, **rest):
    letters = []

    def read(seen):
        if seen >= symbols:
            return None
        letters.append(seen)
        return letters[-1 - items] if len(letters) > items else None

    return read


def associative_recall(items, values, **rest):
    table = {}

    def read(seen):
        key, value = seen
        if value < values:
            table[key] = value
        return table[key] if key < items and value == values else None

    return read


def counting(items, **rest):
    counts = [0] * items

    def read(seen):
        if seen < items:
            counts[seen] += 1
        if not items <= seen < 2 * items:
            return None
        answer, counts[seen - items] = counts[seen - items], 0
        return answer

    return read


def memory_demand(symbols, lags, items=None, delay=None, **rest):
    letters, back = [], lags or range(delay, delay + items)

    def read(seen):
        letters.append(seen)
        return sum(letters[-1 - lag] for lag in back) % symbols if len(letters) > max(back) else None

    return read


def language(answer="end", **rest):
    """Of the five places that permutations move, the one that the first thing has come to."""
    places = list(range(5))

    def read(seen):
        if seen < 2:
            moved = {0: lambda place: (place + 1) % 5, 1: lambda place: (place + 1) % 4 if place < 4 else 4}
            places[:] = map(moved[seen], places)
        return places[0] if (answer == "every") == (seen < 2) else None

    return read


CASES = [
    ("Copy", copy, {"items": 3, "delay": 2, "rewrites": 0}),
    ("Copy", copy, {"items": 1, "delay": 0, "rewrites": 4, "symbols": 7}),
    ("NBack", n_back, {"items": 1, "delay": 0, "rewrites": 0}),
    ("NBack", n_back, {"items": 3, "delay": 2, "rewrites": 5, "symbols": 2}),
    ("AssociativeRecall", associative_recall, {"items": 1, "rewrites": 3, "delay": 2}),
    ("AssociativeRecall", associative_recall, {"items": 5, "rewrites": 4, "values": 9}),
    ("Counting", counting, {"items": 1, "delay": 0, "rewrites": 2}),
    ("Counting", counting, {"items": 3, "delay": 4, "rewrites": 1, "most": 2}),
    ("MemoryDemand", memory_demand, {"items": 1, "delay": 0, "rewrites": 3}),
    ("MemoryDemand", memory_demand, {"items": 3, "delay": 2, "rewrites": 6, "symbols": 3}),
    ("MemoryDemand", memory_demand, {"lags": [0, 5], "rewrites": 6}),
]
every_case = pytest.mark.parametrize(("task", "player", "dials"), CASES)


@every_case
def test_a_player_with_memory_gets_everything(task, player, dials):
    """It is asked as often as the card says, earns 1, and answers as the oracle does."""
    env = make(task, 6, **dials)
    obs, _ = env.reset(seed=3)
    for _ in range(2):
        players, total, asked, over = [player(**env.params) for _ in range(6)], 0, 0, False
        while not over:
            answers = [read(seen) for read, seen in zip(players, obs.tolist(), strict=True)]
            assert [answer is not None for answer in answers] == env.asked().tolist()
            actions = np.array([answer or 0 for answer in answers])
            np.testing.assert_array_equal(actions[env.asked()], env.oracle()[env.asked()])
            asked += env.asked()[0]
            obs, reward, terminated, truncated, _ = env.step(actions)
            total, over = total + reward, terminated.all()
            assert terminated.any() == over and not truncated.any()
        np.testing.assert_allclose(total, 1)
        assert asked * env._pay.max() == pytest.approx(1)
        obs, *_ = env.step(actions)  # the slot after the last action; the next episode begins


LANGUAGES = [
    ("RegularLanguage", language, {"language": "sym5", "n": 7, "answer": answer}) for answer in ("end", "every")
]


@pytest.mark.parametrize(("task", "player", "dials"), [*CASES, *LANGUAGES])
def test_streams_have_the_same_episodes_for_every_number_of_rows_and_window(task, player, dials):
    many, few, cut = (make(task, 1, **dials).stream(*given, seed=5) for given in ((9, 70), (4, 70), (9, 10)))
    batch = many.next()
    for a, b, c in zip(batch, few.next(), zip(*(cut.next() for _ in range(7)), strict=True), strict=True):
        np.testing.assert_array_equal(a[:4], b)
        np.testing.assert_array_equal(a, np.concatenate(c, 1))
    read, params = None, make(task, 1, **dials).params
    for row in range(9):
        for slot in range(70):
            if batch.start[row, slot]:
                read = player(**params)
            answer = read(batch.symbols[row, slot].tolist()) if read and batch.start[row, : slot + 1].any() else None
            assert (answer is not None) == batch.mask[row, slot]
            assert answer is None or answer == batch.label[row, slot]
        read = None
    assert batch.mask.any() and len({tuple(starts) for starts in batch.start}) > 1  # rows are not in step


def test_a_stream_goes_on_from_its_state():
    one, other = (Copy(1, items=2, delay=3).stream(5, 12, seed) for seed in (1, 2))
    one.next()
    saved = one.state()
    expected = [one.next() for _ in range(3)]
    other.restore(saved)
    for a, b in zip(expected, (other.next() for _ in range(3)), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("skill", "lengths"), [(0.9, "fixed"), (0.05, "uniform")])
def test_an_endless_tmaze_keeps_its_rules(skill, lengths):
    """Forward in every corridor, and at its end the turn of its cue; players without skill run out of time."""
    env, rng = EndlessTMaze(40, corridor_length=3, num_corridors=4, lengths=lengths), np.random.default_rng(0)
    obs, _ = env.reset(seed=1)
    rows, ends = np.arange(40), []
    number, x, over = np.zeros(40, int), np.zeros(40, int), np.zeros(40, bool)
    while not over.all():
        cue, end = env.cues[rows, number], x == env.corridors[rows, number]
        begins = (x == 0) & (number < 4)
        expected = np.stack([np.float32(x / 3), begins & (cue == 0), begins & (cue == 1)], 1)
        np.testing.assert_array_equal(obs[~over], expected[~over])
        others = rng.integers(LEFT if skill < 0.5 else FORWARD, RIGHT + 1, 40)
        is_led = (rng.uniform(size=40) < skill) | (end & (skill < 0.5))  # a wrong turn would end it early
        actions = np.where(is_led, env.oracle(), others)
        obs, reward, terminated, truncated, infos = env.step(actions)
        right = end & (actions == np.where(cue == 0, LEFT, RIGHT))
        paid = np.where(end, np.where(right, 1, -1), np.where(actions == FORWARD, 0, -0.01))
        np.testing.assert_array_equal(reward[~over], paid[~over])
        number, x = number + right, np.where(right & (number < 3), 0, x + (~end & (actions == FORWARD)))
        ended = (end & ~right) | (number == 4)
        np.testing.assert_array_equal(terminated[~over], ended[~over])
        now = (terminated | truncated) & ~over
        success = infos.get("success", now)
        np.testing.assert_array_equal(success[now], number[now] == 4)
        ends += zip(terminated[now].tolist(), success[now].tolist(), strict=True)
        over, number = over | now, np.minimum(number, 4)
    assert len(set(ends)) > 1, "the test saw one kind of end only"
    assert skill > 0.5 or (False, False) in ends


@pytest.mark.parametrize("dials", [{"num_cubes": 1, "num_targets": 2}, {"updates": "positions"}, {"teleport": 0.7}])
def test_color_cubes_keep_their_rules(dials):
    """Who steps on the cube that is wanted is paid and the cube jumps; at most one jumps, and it is shown then."""
    env, rng, rows = ColorCubes(30, size=4, **dials), np.random.default_rng(0), np.arange(30)
    env.reset(seed=1)
    (number, cubes), targets, ends = (env.cubes.shape[1], env.cubes.copy()), env.params["num_targets"], set()
    caught, over, t = np.zeros(30, int), np.zeros(30, bool), 0
    while not over.all():
        wanted = env.targets[rows, caught]
        actions = np.where(rng.uniform(size=30) < 0.7, env.oracle(), rng.integers(0, 4, 30))
        place = np.stack(np.divmod(env.player, 4), 1) + np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])[actions]
        player = np.clip(place, 0, 3) @ [4, 1]
        obs, reward, terminated, truncated, _ = env.step(actions)
        t, catches, jumped = t + 1, cubes[rows, wanted] == player, env.cubes != cubes
        caught, cubes = caught + (catches & ~over), env.cubes.copy()
        shown = np.rint(3 * obs[:, number + 4 :].reshape(30, number, 2)).astype(int) @ [4, 1]
        for i in np.flatnonzero(~over):
            assert (env.player[i], reward[i]) == (player[i], catches[i])
            assert jumped[i].sum() <= 1 and jumped[i, wanted[i]] == catches[i]
            assert len({*cubes[i]}) == number and player[i] not in cubes[i, jumped[i]]
            assert obs[i, number + 2] == jumped[i].any()
            assert sorted(shown[i]) == (sorted(cubes[i]) if jumped[i].any() else [0] * number)
            assert terminated[i] == (caught[i] == targets)
            assert truncated[i] == (t == 6 * targets and not terminated[i])
            ends.add((bool(terminated[i]), bool(truncated[i])))
        over |= terminated | truncated
    assert {(True, False), (False, True)} <= ends


def test_an_order_that_is_none_is_refused():
    env = make("AssociativeRecall", 1, items=2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="`order` is no order of the keys"):
        env.reset(options={"hidden": {"order": [[0, 0]]}})


@every_case
def test_the_full_state_has_the_due_answer_and_all_that_comes_later_ones(task, player, dials):
    """Episodes that have the same full state from some slot on, and see the same, are asked for the same."""
    env = make(task, 400, **{**dials, "privileged": True})
    answers = env.single_action_space.n
    obs, _ = env.reset(seed=2)
    later = {}  # (slot, full state) -> what was seen and asked for afterwards
    states, trace = [], []
    over = False
    while not over:
        assert env.observation_space.contains(obs)
        due = obs["privileged"][:, :answers]
        asked = env.asked()
        np.testing.assert_array_equal(due.argmax(1)[asked], env.oracle()[asked])
        assert (due.sum(1) == asked).all()
        states.append(obs["privileged"].copy())
        trace.append((obs["observation"].copy(), np.where(asked, env.oracle(), -1)))
        obs, _, terminated, _, _ = env.step(env.oracle())
        over = terminated.all()
    for t in range(len(states) - 1):
        for i in range(400):
            seen = np.concatenate([np.ravel(obs[i]) for obs, _ in trace[t + 1 :]]).tobytes()
            wanted = [int(answer[i]) for _, answer in trace[t + 1 :]]
            assert later.setdefault((t, states[t][i].tobytes(), seen), wanted) == wanted


@pytest.mark.parametrize("name", ["copy", "parity"])
def test_tasks_that_can_be_read_are_played_in_as_many_copies_as_asked_for(name):
    assert make_env(load([f"env={name}"]), 3).num_envs == 3
