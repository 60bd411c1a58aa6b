"""An encoder of images by convolutions."""

from collections.abc import Callable, Sequence
from typing import Literal, cast

from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.agents.encoder import InputEncoder
from rlmem.core.spaces import channels_first, is_image
from rlmem.core.types import NonNegativeInt, PositiveInt
from rlmem.scan import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "leaky_relu": F.leaky_relu}


class ImageEncoder(InputEncoder):
    """An image through convolutions and a linear layer; previous action, previous reward and start flag beside it.

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
