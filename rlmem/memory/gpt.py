"""GPT: causal self-attention over the last slots of an episode."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import Layers, PositiveFloat, PositiveInt
from rlmem.memory.blocks import head_width
from rlmem.memory.positions import rotate, rotation, sinusoid
from rlmem.memory.window import Past, Window
from rlmem.scan import Linear

Positions = Literal["sinusoidal", "learned", "rotary", "none"]


class GPT(Window):
    """GPT-2's pre-norm transformer (Radford et al. 2019) as a memory; by default one block, as Lu et al. 2024
    (arXiv:2405.17358) use for T-Maze, where their width is 128 and their window the whole episode.

        z = W_in x + p_age                                    (no W_in if D = H)
        z = z + W_o attention(W_qkv LN_1 z)                   per layer; Vaswani et al. 2017, arXiv:1706.03762, eq. 1
        z = z + W_2 GELU(W_1 LN_2 z)                          per layer, 4 H wide, tanh form of GELU
        y = LN_f z

    A layer attends to the last `window` slots of the episode, so L layers reach L (window - 1) slots back; forward
    over many slots uses the same masks. Positions are slots since the episode's start (published: since the start of
    the sampled segment). No dropout (published: 0.1), since training must re-read what acting used. Weights are
    N(0, 0.02), biases zero; W_in keeps torch's initialisation.
    State: age [B]; keys and values L0.k, L0.v, ... [B, window - 1, H]. Cost: O(T window H) per layer.

    hidden_size: H, width of every layer
    num_layers: L
    num_heads: heads of attention; must divide H
    window: slots that one layer attends to, the present one included
    positions: sinusoidal and learned are added to the input, rotary rotates queries and keys, none has no order
    base: sets the longest wavelength of sinusoidal and rotary positions (POPGym: 1024, the longest episode)
    max_length: rows of the table of learned positions; later slots share the last row
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_layers: Layers = 1,
        num_heads: PositiveInt = 1,
        window: PositiveInt = 128,
        positions: Positions = "sinusoidal",
        base: PositiveFloat = 10000.0,
        max_length: PositiveInt = 1024,
    ):
        super().__init__(input_size, hidden_size)
        head_width(hidden_size, num_heads)
        self.positions, self.base, self.num_heads = positions, base, num_heads
        self.caches = {f"L{i}.{part}": (window - 1, hidden_size) for i in range(num_layers) for part in "kv"}
        self.layers = nn.ModuleList(AttentionBlock(hidden_size, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(hidden_size)
        if input_size != hidden_size:
            self.W_in = Linear(input_size, hidden_size)
        if positions == "learned":
            self.W_p = nn.Embedding(max_length, hidden_size)
            nn.init.normal_(self.W_p.weight, std=0.02)

    def read(self, x: Tensor, past: Past) -> Tensor:
        z = self.W_in(x) if self.input_size != self.output_size else x
        if self.positions == "sinusoidal":
            z = z + sinusoid(past.age, self.output_size, self.base).to(z.dtype)
        elif self.positions == "learned":
            last = self.W_p.num_embeddings - 1
            z = z + self.W_p(past.age.nan_to_num(last).clamp(0, last).long())  # NaN: the last row
        head_width = self.output_size // self.num_heads
        rotated = self.positions == "rotary"
        turn = tuple(w.to(z.dtype) for w in rotation(past.age, head_width, self.base)) if rotated else None
        for i, layer in enumerate(self.layers):
            z = layer(z, past, f"L{i}", turn)
        return self.ln_f(z)


class AttentionBlock(nn.Module):
    """One pre-norm layer: attention, then a perceptron, each added to its input. W_qkv stacks W_q, W_k and W_v."""

    def __init__(self, width: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W_qkv, self.W_o = Linear(width, 3 * width), Linear(width, width)
        self.W_1, self.W_2 = Linear(width, 4 * width), Linear(4 * width, width)
        for linear in (self.W_qkv, self.W_o, self.W_1, self.W_2):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, z: Tensor, past: Past, name: str, turn: tuple[Tensor, Tensor] | None) -> Tensor:
        q, k, v = self.W_qkv(self.ln_1(z)).chunk(3, -1)
        if turn is not None:
            q, k = (rotate(part.unflatten(-1, (self.num_heads, -1)), *turn).flatten(-2) for part in (q, k))
        z = z + self.W_o(past.attend(name, q, k, v, self.num_heads))
        return z + self.W_2(F.gelu(self.W_1(self.ln_2(z)), approximate="tanh"))
