"""The order model: which positions does the target commit next, and do their tokens hold? About 0.62 M parameters.

It reads a block once and answers for the next eight steps, so that a whole tree costs one call (under noise that is
drawn per step, one for each step): the order at a hypothetical state is the answer for its step, renormalised over the
positions that are still masked there.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from dlmspec.json_object import Settings, read_json_object
from dlmspec.order.features import NUM_FEATURES

MODEL_TYPE = "dlmspec_order_model"
MAX_STALENESS = 8


@dataclass(frozen=True, slots=True)
class OrderConfig:
    """Sizes of an order model."""

    num_features: int = NUM_FEATURES
    hidden_size: int = 128
    num_layers: int = 3
    num_heads: int = 8
    intermediate_size: int = 512


class EncoderLayer(nn.Module):
    """Pre-norm self-attention over the positions of a block, then a feed-forward."""

    def __init__(self, config: OrderConfig, dropout: float) -> None:
        super().__init__()
        width = config.hidden_size
        self.num_heads = config.num_heads
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """`[N, M, d]` → `[N, M, d]`; `visible` bool `[N, 1, 1, M]` masks keys."""
        num_states, length, width = x.shape
        heads = self.qkv(self.attention_norm(x)).view(num_states, length, 3, self.num_heads, width // self.num_heads)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(queries, keys, values, visible)
        x = x + self._drop(self.out(attended.transpose(1, 2).reshape(num_states, length, width)))
        return x + self._drop(self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh")))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.training else x


class OrderModel(nn.Module):
    """Features of a block `[N, M, F]` → per position and staleness an order score and a token score."""

    def __init__(self, config: OrderConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.num_features, config.hidden_size)
        self.mix = nn.Linear(config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config, dropout) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, 2 * MAX_STALENESS)

    def forward(self, features: Tensor, present: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Two of `[N, 8, M]` fp32, by staleness − 1: order scores and token scores.

        A softmax of the order scores over the positions masked at that step is the probability that each is committed
        there; the sigmoid of a token score the probability that its coupled token is then the committed one. Positions
        that were decided before the distributions were read tell nothing: `present` bool `[N, M]` hides them in a
        training batch, a drafter leaves their rows out.
        """
        visible = None if present is None else present[:, None, None, :]
        x = self.mix(F.gelu(self.embed(features), approximate="tanh"))
        for layer in self.layers:
            x = layer(x, visible)
        scores = self.head(self.norm(x)).float().transpose(1, 2)
        return scores[:, :MAX_STALENESS], scores[:, MAX_STALENESS:]


class FrozenOrderModel:
    """The same function for one state without hidden positions: its weights packed as [in, out], no module calls.

    A drafter asks it once per pass, and at this size what a call costs beside its arithmetic counts.
    """

    def __init__(self, model: OrderModel) -> None:
        def packed(linear: nn.Linear) -> tuple[Tensor, Tensor]:
            return linear.bias.detach(), linear.weight.detach().t().contiguous()

        def norm(layer: nn.LayerNorm) -> tuple[list[int], Tensor, Tensor]:
            return list(layer.normalized_shape), layer.weight.detach(), layer.bias.detach()

        self.num_heads = model.config.num_heads
        self.embed, self.mix, self.head = packed(model.embed), packed(model.mix), packed(model.head)
        self.norm = norm(model.norm)
        self.layers = []
        for layer in model.layers:
            assert isinstance(layer, EncoderLayer)
            self.layers.append(
                (norm(layer.attention_norm), packed(layer.qkv), packed(layer.out), norm(layer.feed_forward_norm),
                 packed(layer.up), packed(layer.down))
            )  # fmt: skip

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """`[M, F]` → two of `[8, M]`."""
        length, heads = len(features), self.num_heads
        x = F.gelu(torch.addmm(self.embed[0], features, self.embed[1]), approximate="tanh")
        x = torch.addmm(self.mix[0], x, self.mix[1])
        for attention_norm, qkv, out, feed_forward_norm, up, down in self.layers:
            mixed = torch.addmm(qkv[0], F.layer_norm(x, *attention_norm), qkv[1])
            queries, keys, values = mixed.view(length, 3, heads, -1).permute(1, 2, 0, 3).unbind(0)
            attended = F.scaled_dot_product_attention(queries[None], keys[None], values[None])[0]
            x = x + torch.addmm(out[0], attended.transpose(0, 1).reshape(length, -1), out[1])
            widened = F.gelu(torch.addmm(up[0], F.layer_norm(x, *feed_forward_norm), up[1]), approximate="tanh")
            x = x + torch.addmm(down[0], widened, down[1])
        scores = torch.addmm(self.head[0], F.layer_norm(x, *self.norm), self.head[1]).t()
        return scores[:MAX_STALENESS], scores[MAX_STALENESS:]


def load_order_model(directory: Path) -> OrderModel:
    """The order model of a drafter directory, in fp32.

    Raises ValueError if the directory is none, of another version, or if its weights do not fit its config.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ValueError(f"{directory} is no drafter directory: config.json is missing")
    content = read_json_object(path, "train the drafter again")
    if content.get("model_type") != MODEL_TYPE:
        raise ValueError(f"{directory} holds no order model: model_type in config.json is not {MODEL_TYPE}")
    config = _read_order_config(Settings(path, content))
    try:
        weights = load_file(directory / "model.safetensors")
    except Exception as error:  # safetensors raises many kinds; each means damaged weights
        raise ValueError(f"cannot load the order model in {directory}: {error}; train it again") from error
    with torch.device("meta"):  # nothing is allocated before the shapes are known to be right
        model = OrderModel(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if weights.keys() != expected.keys() or len(weights["head.weight"]) != 2 * MAX_STALENESS:
        raise _another_version(directory)
    for name, shape in expected.items():
        if tuple(weights[name].shape) != shape:
            raise ValueError(
                f"cannot load the order model in {directory}: {name} has shape {tuple(weights[name].shape)}, "
                f"config.json says {shape}; train it again"
            )
    model.load_state_dict(weights, assign=True)
    return model.float().eval().requires_grad_(False)


def _read_order_config(settings: Settings) -> OrderConfig:
    names = asdict(OrderConfig())
    if any(name not in settings.content for name in names):
        raise _another_version(settings.path.parent)
    config = OrderConfig(**{name: settings.integer(name) for name in names})
    if config.num_features != NUM_FEATURES:
        raise _another_version(settings.path.parent)
    if config.hidden_size % config.num_heads:
        raise settings.refusal("hidden_size", config.hidden_size, f"a multiple of num_heads, {config.num_heads}")
    return config


def _another_version(directory: Path) -> ValueError:
    return ValueError(f"the drafter {directory} was trained for another version of the order model; train it again")


def order_config_dict(config: OrderConfig) -> dict:
    """The content of a drafter's config.json."""
    return {"model_type": MODEL_TYPE, **asdict(config)}


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
