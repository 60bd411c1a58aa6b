"""Encoders of images, by convolutions, and of observations that have several parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.agents.encoder import Embedding, Features, InputEncoder
from rlmem.agents.layers import name_leaf, orthogonal
from rlmem.core.spaces import by_path, channels_first, chosen, is_image, is_tree
from rlmem.core.types import NonNegativeInt, PositiveInt
from rlmem.scan import Linear

LEAST_SIDE = 8
"""Pixels of the shorter side from which on bytes in two or three dimensions are taken for an image."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "leaky_relu": F.leaky_relu}


class ImageEncoder(InputEncoder):
    """Convolutions and a linear layer for an image; previous action, previous reward and start flag are appended.

        x = [W g(conv_n(.. g(conv_1(obs)) ..)) + b, prev_action, prev_reward, start],   g = phi or phi . LN

    Images are [C, H, W], [H, W, C] or [H, W]: the channels are on the shorter of the outer axes. Torch's
    initialisation. The defaults, without the inputs beside the image, are those published for Visual Match and
    Key-to-Door (Ni et al. 2023, arXiv:2307.03864).

    hidden_size: features of the image, the rows of W
    convolutions: channels, kernel and stride of each, without padding
    activation: phi
    normalise: a layer norm LN without parameters over each channel's height and width (Memoroids, Morad et al. 2024,
        arXiv:2402.09900)
    shortcut_size: width of the observation's embedding that skips the memory, 0 for none; it reads the flattened image
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: PositiveInt = 100,
        convolutions: Sequence[tuple[PositiveInt, PositiveInt, PositiveInt]] = ((8, 2, 1), (16, 2, 1)),
        activation: Literal["relu", "leaky_relu"] = "relu",
        normalise: bool = False,
        prev_action: bool = True,
        prev_reward: bool = False,
        start_flag: bool = True,
        shortcut_size: NonNegativeInt = 0,
    ):
        if not is_image(observation_space):
            raise ValueError(f"reads images ([C, H, W], [H, W, C] or [H, W]), not {observation_space}")
        super().__init__(observation_space, action_space, shortcut_size, prev_action, prev_reward, start_flag)
        self.activation, self.normalise = ACTIVATIONS[activation], normalise
        box = cast(spaces.Box, observation_space)
        self.shape = box.shape if len(box.shape) == 3 else (1, *box.shape)
        self.channels_last = len(box.shape) == 3 and not channels_first(box)
        channels, height, width = (self.shape[-1], *self.shape[:-1]) if self.channels_last else self.shape
        self.convolutions = nn.ModuleList()
        for i, (out, kernel, stride) in enumerate(convolutions):
            if kernel > min(height, width):
                raise ValueError(f"convolutions[{i}] has a kernel of {kernel}, but its input is {height} x {width}")
            self.convolutions.append(nn.Conv2d(channels, out, kernel, stride))
            channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
            if normalise and height * width == 1:
                raise ValueError(f"normalise leaves nothing of the output of convolutions[{i}], which is 1 x 1")
        self.features = Linear(channels * height * width, hidden_size)
        self.output_size = hidden_size + self.plain_size

    @property
    def reading(self) -> str:
        *outer, last = self.shape
        channels, sides = (last, outer) if self.channels_last else (outer[0], [*outer[1:], last])
        axis = "last" if self.channels_last else "first"
        return f"an image of {sides[0]} x {sides[1]} with {channels} channels, on the {axis} axis"

    def forward(self, obs: Tensor, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        x = self.obs_features(obs).to(self.features.weight.dtype).reshape(-1, *self.shape)
        if self.channels_last:
            x = x.movedim(-1, 1)
        for convolution in self.convolutions:
            x = convolution(x)
            x = self.activation(F.layer_norm(x, x.shape[-2:]) if self.normalise else x)
        return self.beside(self.features(x.flatten(1)).view(*start.shape, -1), prev_action, prev_reward, start)


class Leaves(InputEncoder):
    """Observations of several parts (Dict, Tuple), each leaf by an encoder of its own, merged to x [..., hidden_size].

        x = phi(W_2 LN(W_1 [f_1(leaf_1), ..., f_n(leaf_n), prev_action, prev_reward, start] + b_1) + b_2)

    phi = LeakyReLU; the layer norm has no parameters. f_i is ReLU(V_i leaf_i + c_i) of the leaf's numbers, one-hot
    where it is discrete, or for bytes that look like an image an `ImageEncoder`.

    leaf_size: width of the features of each leaf
    include: leaves that are read, by path, part of the tree or pattern (`arm/*`); None: all but `action_mask` and
        `privileged`
    exclude: leaves that are not read, likewise
    leaves: settings of single leaves by their paths: `kind` (vector, image), `hidden_size` in the place of `leaf_size`,
        and for images `convolutions`, `activation` and `normalise` as for `ImageEncoder`
    normalise_obs: normalise the leaves that are rows of floats, see `InputEncoder`
    """

    reads_leaves = True

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: PositiveInt = 128,
        leaf_size: PositiveInt = 64,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        leaves: Mapping[str, Mapping[str, Any]] | None = None,
        prev_action: bool = True,
        prev_reward: bool = False,
        start_flag: bool = True,
        normalise_obs: bool = False,
    ):
        if not is_tree(observation_space):
            raise ValueError(f"reads observations of several parts (Dict, Tuple), not {observation_space}; e.g. mlp")
        parts, settings = by_path(observation_space), leaves or {}
        read = chosen(list(parts), include, exclude)
        if unknown := [name for name in settings if name not in read]:
            raise ValueError(f"leaves: `{unknown[0]}` is no leaf that is read; these are: {', '.join(read)}")
        encoders: list[Vector | Image] = []
        for name in read:
            space, options = parts[name], {"hidden_size": leaf_size} | dict(settings.get(name, {}))
            kind = options.pop("kind", "image" if _looks_like_image(space) else "vector")
            if kind not in KINDS:
                raise ValueError(f"leaves.{name}.kind={kind}: expected one of {', '.join(KINDS)}")
            make: Any = KINDS[kind]
            if extra := [key for key in options if key not in make.keys]:
                raise ValueError(f"leaves.{name}: no key `{extra[0]}`; accepted: kind, {', '.join(make.keys)}")
            try:
                encoders.append(make(space, action_space, normalise_obs, **options))
            except (ValueError, TypeError) as error:
                raise ValueError(f"leaves.{name}: {error}") from error
            name_leaf(encoders[-1], name)
        merged = spaces.Box(-np.inf, np.inf, (sum(leaf.output_size for leaf in encoders),))
        super().__init__(merged, action_space, 0, prev_action, prev_reward, start_flag)
        self.read, self.leaves, self.output_size = read, nn.ModuleList(encoders), hidden_size
        self.features = orthogonal(Linear(self.obs_features.size + self.plain_size, hidden_size))
        self.hidden = orthogonal(Linear(hidden_size, hidden_size))

    @property
    def reading(self) -> str | None:
        ways = {name: leaf.reading for name, leaf in zip(self.read, self.leaves, strict=True)}
        return ", ".join(f"`{name}` as {way}" for name, way in ways.items() if way is not None) or None

    def forward(self, obs: Any, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        seen = [leaf(obs[name], start) for name, leaf in zip(self.read, self.leaves, strict=True)]
        x = self.features(self.beside(self.obs_features(torch.cat(seen, -1)), prev_action, prev_reward, start))
        return F.leaky_relu(self.hidden(F.layer_norm(x, x.shape[-1:])))


class Vector(nn.Module):
    """A leaf's numbers, one-hot where it is discrete, through a linear layer and ReLU: [..., hidden_size]."""

    keys = ("hidden_size",)

    def __init__(self, space: Space, action_space: Space, normalise_obs: bool, hidden_size: int):
        super().__init__()
        self.features, self.output_size = Features(space, normalise=normalise_obs), hidden_size
        self.embedding = Embedding(self.features.size, hidden_size)
        self.reading = self.features.reading

    def forward(self, obs: Tensor, start: Tensor) -> Tensor:
        return self.embedding(self.features(obs))


class Image(nn.Module):
    """An image through an `ImageEncoder` that reads nothing else: [..., hidden_size]."""

    keys = ("hidden_size", "convolutions", "activation", "normalise")

    def __init__(self, space: Space, action_space: Space, normalise_obs: bool, **settings: Any):
        super().__init__()
        self.encoder = ImageEncoder(space, action_space, prev_action=False, start_flag=False, **settings)
        self.output_size, self.reading = self.encoder.output_size, self.encoder.reading

    def forward(self, obs: Tensor, start: Tensor) -> Tensor:
        return self.encoder(obs, start, start, start)  # of the inputs beside the image it reads none


KINDS: dict[str, type[Vector] | type[Image]] = {"vector": Vector, "image": Image}


def _looks_like_image(space: Space) -> bool:
    if not is_image(space) or space.dtype != np.uint8:
        return False
    assert space.shape is not None
    return min(sorted(space.shape)[-2:]) >= LEAST_SIDE
