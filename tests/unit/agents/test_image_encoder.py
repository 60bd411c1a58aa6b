"""Images: which spaces are, what encoders make of them, and bytes that stay bytes from the environment to the batch."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlmem_envs.registration import make
from torch.nn import functional as F

from rlmem.acting.collector import Collector
from rlmem.agents.encoder import Embeddings, Encoder, Features
from rlmem.agents.leaves import ImageEncoder
from rlmem.batching import Replay, Tape
from rlmem.core.spaces import channels_first, is_flat, is_image, is_readable

ACTION = spaces.Discrete(4)
CPU = torch.device("cpu")


def bytes_box(*shape: int, high: int = 255) -> spaces.Box:
    return spaces.Box(0, high, shape, np.uint8)


SMALL_IMAGE = bytes_box(3, 5, 5)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def slots(space, *leading: int):
    """obs, prev_action, prev_reward and start of random slots, some of them starts."""
    obs = torch.randint(0, 256, (*leading, *space.shape), dtype=torch.uint8)
    start = torch.arange(int(np.prod(leading))).view(leading) % 3 == 0
    return obs, torch.randint(4, leading), torch.randn(leading), start


CHANNELS_FIRST = {(3, 5, 5): True, (84, 84, 4): False, (5, 5, 5): True, (84, 84): None, (7,): None, (2, 3, 4, 5): None}


@pytest.mark.parametrize("shape", CHANNELS_FIRST, ids=str)
def test_images_are_boxes_of_two_or_three_dimensions(shape):
    space = bytes_box(*shape)
    assert is_image(space) == (len(shape) in (2, 3))
    assert is_readable(space) == (len(shape) < 4)
    assert is_flat(space) == (len(shape) == 1)
    if len(shape) == 3:
        assert channels_first(space) == CHANNELS_FIRST[shape]


def test_bytes_are_divided_by_the_greatest_they_can_be():
    obs = torch.tensor([[0, 1, 51, 255]], dtype=torch.uint8)
    torch.testing.assert_close(Features(bytes_box(4))(obs), torch.tensor([[0, 1 / 255, 0.2, 1]]))
    planes = torch.tensor([[0, 1, 1, 0]], dtype=torch.uint8)
    assert torch.equal(Features(bytes_box(4, high=1))(planes).float(), planes.float())
    mixed = spaces.Box(np.zeros(2, np.uint8), np.array([1, 10], np.uint8), dtype=np.uint8)
    torch.testing.assert_close(Features(mixed)(torch.tensor([1, 5], dtype=torch.uint8)), torch.tensor([1, 0.5]))
    numbers = spaces.Box(0, 255, (2,), np.float32)
    assert torch.equal(Features(numbers)(torch.tensor([200.0, 3.0])), torch.tensor([200.0, 3.0]))


@pytest.mark.parametrize("make_encoder", [Encoder, Embeddings])
@pytest.mark.parametrize("leading", [(4,), (2, 5)], ids=str)
def test_encoders_without_convolutions_read_an_image_as_numbers(make_encoder, leading):
    obs, *others = slots(SMALL_IMAGE, *leading)
    image, flat = make_encoder(SMALL_IMAGE, ACTION), make_encoder(bytes_box(75), ACTION)
    flat.load_state_dict(image.state_dict())
    assert torch.equal(image(obs, *others), flat(obs.flatten(-3), *others))
    assert image(obs, *others).shape == (*leading, image.output_size)


@pytest.mark.parametrize("leading", [(4,), (2, 5)], ids=str)
def test_the_network_is_the_one_that_is_written_down(leading):
    encoder = ImageEncoder(SMALL_IMAGE, ACTION, prev_reward=True)
    obs, action, reward, start = slots(SMALL_IMAGE, *leading)
    weights = encoder.state_dict()
    assert {name: tuple(w.shape) for name, w in weights.items() if name.endswith("weight")} == {
        "convolutions.0.weight": (8, 3, 2, 2), "convolutions.1.weight": (16, 8, 2, 2), "features.weight": (100, 144),
    }  # fmt: skip
    x = obs.reshape(-1, 3, 5, 5).float() / 255
    for i in (0, 1):
        x = F.relu(F.conv2d(x, weights[f"convolutions.{i}.weight"], weights[f"convolutions.{i}.bias"]))
    image = F.linear(x.flatten(1), weights["features.weight"], weights["features.bias"]).view(*leading, 100)
    shown = [F.one_hot(action, 4) * ~start[..., None], (reward * ~start)[..., None], start[..., None].float()]
    found = encoder(obs, action, reward, start)
    torch.testing.assert_close(found, torch.cat([image, *shown], -1))
    assert found.shape[-1] == encoder.output_size == 106
    assert ImageEncoder(SMALL_IMAGE, ACTION, prev_action=False, start_flag=False).output_size == 100


def test_a_slot_is_encoded_alike_alone_and_among_others():
    encoder = ImageEncoder(SMALL_IMAGE, ACTION)
    inputs = slots(SMALL_IMAGE, 2, 5)
    for t in range(5):
        torch.testing.assert_close(encoder(*(v[:, t] for v in inputs)), encoder(*inputs)[:, t], rtol=0, atol=1e-6)


def test_channels_may_come_last_and_grey_images_have_one():
    first, last = ImageEncoder(bytes_box(3, 6, 7), ACTION), ImageEncoder(bytes_box(6, 7, 3), ACTION)
    last.load_state_dict(first.state_dict())
    obs, *others = slots(bytes_box(3, 6, 7), 2, 4)
    # Convolutions of another memory layout may round otherwise.
    torch.testing.assert_close(first(obs, *others), last(obs.movedim(-3, -1), *others), rtol=0, atol=1e-6)
    one, grey = ImageEncoder(bytes_box(1, 6, 7), ACTION), ImageEncoder(bytes_box(6, 7), ACTION)
    grey.load_state_dict(one.state_dict())
    assert torch.equal(one(obs[:, :, :1], *others), grey(obs[:, :, 0], *others))


def test_normalised_channels_have_mean_zero_and_variance_one_before_the_activation():
    encoder = ImageEncoder(bytes_box(9, 9), ACTION, convolutions=[(4, 3, 2)], normalise=True, activation="leaky_relu")
    seen = []
    encoder.features.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    encoder(*slots(bytes_box(9, 9), 6))
    before = torch.where(seen[0] > 0, seen[0], seen[0] * 100).view(6, 4, 16)
    torch.testing.assert_close(before.mean(-1), torch.zeros(6, 4), rtol=0, atol=1e-5)
    torch.testing.assert_close(before.var(-1, unbiased=False), torch.ones(6, 4), rtol=1e-2, atol=1e-2)


def test_the_shortcut_reads_the_image_past_the_convolutions():
    encoder = ImageEncoder(SMALL_IMAGE, ACTION, shortcut_size=6)
    obs = slots(SMALL_IMAGE, 2, 5)[0]
    skip = encoder.shortcut(obs)
    torch.testing.assert_close(skip, F.relu(F.linear(obs.flatten(2) / 255, encoder.skip.weight, encoder.skip.bias)))
    assert ImageEncoder(SMALL_IMAGE, ACTION).shortcut(obs).shape == (2, 5, 0)


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (bytes_box(75), {}, r"^reads images \(.*\), not Box\(0, 255, \(75,\), uint8\)"),
        (ACTION, {}, r"^reads images \(.*\), not Discrete\(4\)"),
        (SMALL_IMAGE, {"convolutions": [(8, 4, 1), (8, 3, 1)]}, r"^convolutions\[1\] has a kernel of 3, .* 2 x 2$"),
        (SMALL_IMAGE, {"convolutions": [(8, 5, 1)], "normalise": True}, r"^normalise leaves nothing .* 1 x 1$"),
    ],
)
def test_what_cannot_be_read_is_refused(space, options, message):
    with pytest.raises(ValueError, match=message):
        ImageEncoder(space, ACTION, **options)


class Still:
    """Acts north, without a memory."""

    def initial_state(self, batch_size):
        return ()

    def act(self, inputs, state, generator, exploration):
        assert inputs.obs.dtype == torch.uint8
        return torch.zeros_like(inputs.prev_action), torch.zeros(len(inputs.start)), ()


def test_bytes_stay_bytes_from_the_environment_to_the_batch(tmp_path):
    env = make("VisualMatch", 3, explore_frames=2, distractor_frames=4, reward_frames=2)
    collector = Collector(env, Still(), 0, None, CPU)
    replay = Replay(1000, 3, CPU, directory=tmp_path)
    rollout, _ = collector.collect(slots=40, budget=10**6)
    assert rollout.streams.obs.dtype == torch.uint8 and rollout.streams.obs.shape == (3, 41, 3, 5, 5)
    assert replay.add(rollout) == 12
    stored = replay.slots.arrays["obs"]
    assert isinstance(stored, np.memmap) and stored.dtype == np.uint8 and stored.shape[1:] == (3, 5, 5)
    batch = replay.sample(Tape(), 16, torch.Generator()).batch
    assert batch.obs.dtype == torch.uint8 and batch.obs.shape[2:] == (3, 5, 5)
    assert collector.state_dict()["obs"].dtype == torch.uint8
