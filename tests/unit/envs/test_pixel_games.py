"""Visual Match and Key-to-Door: colours, apples, doors, pictures."""

import numpy as np
import pytest
from rlmem_envs.pixels import board as on
from rlmem_envs.pixels.apple_game import SLOTS
from rlmem_envs.registration import make

SHORT = {"explore_frames": 2, "distractor_frames": 30, "reward_frames": 10}


BOTH = pytest.mark.parametrize("task", ["VisualMatch", "KeyToDoor"])


def orchard(*cells: tuple[int, int]) -> np.ndarray:
    """Apples there, in one environment."""
    layout = np.zeros((1, 7, 11), bool)
    layout[0, [row for row, _ in cells], [column for _, column in cells]] = True
    return layout


def earned(env, *actions: int) -> list[float]:
    """Rewards of environment 0."""
    return [float(env.step(np.full(env.num_envs, action))[1][0]) for action in actions]


@BOTH
@pytest.mark.parametrize("respawn_every", [0, 1, 4])
def test_an_apple_is_back_after_so_many_frames(task, respawn_every):
    env = make(task, 1, explore_frames=1, distractor_frames=40, num_apples=1, respawn_every=respawn_every)
    env.reset(seed=0, options={"hidden": {"apple_layout": orchard((5, 3))}})
    assert earned(env, on.NORTH) == [0]
    assert earned(env, on.WEST, on.WEST) == [0, 1]
    waiting = [on.EAST, on.WEST] * 15  # on the apple's place at even steps
    first = (
        -(-(respawn_every + 2) // 2) * 2
    )  # it is back in the frame after respawn_every others, and eaten in the next
    expected = [float(bool(respawn_every) and step % first == 0) for step in range(1, 31)]
    assert earned(env, *waiting) == expected


@BOTH
def test_an_apple_that_returns_under_the_player_is_eaten_in_the_next_frame(task):
    env = make(task, 1, explore_frames=1, distractor_frames=40, num_apples=1, respawn_every=3)
    env.reset(seed=0, options={"hidden": {"apple_layout": orchard((5, 1))}})
    earned(env, on.NORTH, on.WEST, on.WEST, on.WEST)
    assert earned(env, *[on.WEST] * 12) == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]


@BOTH
def test_apples_are_worth_what_was_drawn(task):
    def worths(fixed: bool) -> np.ndarray:
        env = make(task, 100, apple_reward=(1.0, 4.0), fix_apple_reward_in_episode=fixed)
        env.reset(seed=0)
        rewards = np.stack([env.step(env.oracle())[1] for _ in range(60)])  # up to the middle of the orchard
        return np.stack([column[column > 0][:3] for column in rewards.T])

    fixed, free = worths(True), worths(False)
    assert set(fixed.ravel()) == {1.0, 4.0} and (fixed == fixed[:, :1]).all()
    assert 0.4 < (fixed[:, 0] == 1).mean() < 0.6
    assert (free[:, 0] != free[:, 1]).all() and 1 <= free.min() < 1.1 and 3.9 < free.max() <= 4
    assert free.mean() == pytest.approx(2.5, abs=0.15)


@BOTH
def test_apples_grow_on_every_place_alike(task):
    env = make(task, 4000, num_apples=3)
    env.reset(seed=0)
    places, counts = np.unique(env.orchard, return_counts=True)
    assert sorted(places) == sorted(SLOTS)
    assert np.abs(counts - 12000 / 22).max() < 5 * (12000 / 22) ** 0.5


def test_colours_change_when_they_should():
    def maps(colours: str, seed: int = 0) -> np.ndarray:
        env = make("VisualMatch", 50, colours=colours, **SHORT)
        env.reset(seed=seed)
        found = [env.colours.copy()]
        for _ in range(3):
            env.reset()
            found.append(env.colours.copy())
        return np.stack(found)

    assert (maps("fixed") == [0, 1, 2]).all()
    assert len(np.unique(maps("published")[0], axis=0)) == 6, "environments differ"
    assert (maps("published") == maps("published")[0]).all(), "episodes do not"
    assert (maps("published", 1)[0] != maps("published")[0]).any()
    assert all(len(np.unique(episodes, axis=0)) > 1 for episodes in maps("episode").swapaxes(0, 1))


@BOTH
def test_pictures_and_text_show_the_whole_board(task):
    env = make(task, 2)
    env.reset(seed=0)
    for _ in range(20):
        env.step(env.oracle())
    picture, lines = env.picture(1), env.text(1).splitlines()
    assert lines[0] == "distractor phase, picture 5" and lines[1] == "#" * 11
    row, column = env.player_pos[1]
    assert lines[1 + row][column] == "+" and env.text(1).count("a") - lines[0].count("a") >= 8
    assert (picture[24 * row + 12, 24 * column + 12] == on.COLOURS[on.PLAYER]).all()
    assert env.step(np.zeros(2, int))[0][1][:, 2, 2].tolist() == on.COLOURS[on.PLAYER].tolist()


def test_apples_of_another_number_are_refused():
    with pytest.raises(ValueError, match=r"^hidden fact `apple_layout` has not the 10 apples of `num_apples`$"):
        make("KeyToDoor", 1).reset(options={"hidden": {"apple_layout": orchard((1, 1))}})


def test_a_phase_may_be_left_out():
    env = make("KeyToDoor", 200, explore_frames=10, distractor_frames=0, reward_frames=10, reward_grid="CCA")
    env.reset(seed=0)
    total = sum(env.step(env.oracle())[1] for _ in range(20))
    assert env.over.all() and (total == 5).all()
