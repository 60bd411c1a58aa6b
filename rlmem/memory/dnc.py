"""Differentiable Neural Computer."""

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import RecurrentCell
from rlmem.memory.dnc_sequence import DNCState, Sequence, access, controller, interface, interface_sizes
from rlmem.scan.matmul import Linear
from rlmem.types import PositiveInt

State = dict[str, Tensor]


class DNC(RecurrentCell):
    """Differentiable Neural Computer (Graves et al. 2016, Nature 538:471-476, Methods), one LSTM layer as controller.

        h, s = LSTM([x; r_1 .. r_R], h, s),  xi = W_xi h                       z = [h; r_1 .. r_R]
        u   <- (u + w_w - u * w_w) * prod_r (1 - free_r w_r)                   usage
        w_w <- g_w (g_a allocation(u) + (1 - g_a) content(M, k_w, beta_w))     write weights
        M   <- M * (1 - w_w erase^T) + w_w write^T
        L_ij <- (1 - w_w_i - w_w_j) L_ij + w_w_i p_j,  L_ii = 0                links: i was written after j
        p   <- (1 - sum w_w) p + w_w                                           precedence
        w_r <- backward L^T w_r + by_content content(M, k_r, beta_r) + forward L w_r
        r    = w_r M,  y = W_y z + b_y

    xi holds keys, strengths (1 + softplus), gates and erase (sigmoid), write, and modes (softmax). content is the
    softmax of beta times the cosine similarity, with 1e-6 added to squared norms: the memory starts empty. allocation
    fills the cells by rising usage, equals (to 1e-5) in the order of their index; no gradient passes the order.
    State: {z [B, H + R W], s [B, H], M [B, N, W], L [B, N, N], p, u, w_w [B, N], w_r [B, R, N]}. O(N^2) per slot; over
    a sequence, a loop with a hand-written backward (`rlmem.memory.dnc_sequence`, which holds the equations).
    The published agent built its weights at the first forward, after its optimiser: they were never trained.

    hidden_size: H, width of the controller and of the output
    num_cells: N;  cell_size: W;  read_heads: R
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_cells: PositiveInt = 16,
        cell_size: PositiveInt = 16,
        read_heads: PositiveInt = 4,
    ):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.N, self.W, self.R = num_cells, cell_size, read_heads
        z_size = hidden_size + read_heads * cell_size
        self.W_x = Linear(input_size, 4 * hidden_size)  # of the controller's gates i, f, g, o
        self.U = Linear(z_size, 4 * hidden_size, bias=False)
        self.W_xi = Linear(hidden_size, sum(interface_sizes(read_heads, cell_size)))
        self.W_y = Linear(z_size, hidden_size)

    def initial_state(self, batch_size: int) -> State:
        H, N, W, R = self.output_size, self.N, self.W, self.R
        shapes = [(H + R * W,), (H,), (N, W), (N, N), (N,), (N,), (N,), (R, N)]
        zeros = self._like_parameters().new_zeros
        return {name: zeros(batch_size, *shape) for name, shape in zip(DNCState._fields, shapes, strict=True)}

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, s = controller(self.W_x(x) + self.U(state["z"]), state["s"])
        after = access(interface(self.W_xi(h), self.R, self.W), h, s, DNCState(**state))
        return self.W_y(after.z), after._asdict()

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        weights = self.U.weight, self.W_xi.weight, self.W_xi.bias
        sizes = packed.batch_sizes.tolist()
        z, *final = Sequence.apply(self.W_x(packed.data), *weights, self.R, self.W, sizes, last, *DNCState(**state))
        return self.W_y(z), DNCState(z[last], *final)._asdict()
