"""An encoder without weights."""

from gymnasium import Space
from torch import Tensor

from rlmem.agents.encoder import InputEncoder


class Plain(InputEncoder):
    """Observation and, by choice, previous action, previous reward and start flag side by side: x [..., D].

    Discrete observations are one-hot. This is the input of the supervised LP-RNN and LSTM of Stepleton et al. 2018
    (arXiv:1805.04955, figures 11 and 13a), which have no embedding.

    normalise_obs: see `InputEncoder`
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        prev_action: bool = False,
        prev_reward: bool = False,
        start_flag: bool = False,
        normalise_obs: bool = False,
    ):
        super().__init__(observation_space, action_space, 0, prev_action, prev_reward, start_flag, normalise_obs)
        self.output_size = self.obs_features.size + self.plain_size

    def forward(self, obs: Tensor, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        return self.beside(self.obs_features(obs).float(), prev_action, prev_reward, start)
