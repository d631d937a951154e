"""GPT-Neo: a GPT-2 with local attention in some layers, without a scale of the attention scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import InputError
from regard.models.family import Checkpoint, Family, FileFormat, TensorNames, qkv, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init

KINDS = ("global", "local")


@dataclass(frozen=True)
class GptNeoConfig:
    """GPT-Neo 125M by default. `attention_types` are those of the layers, repeated from the first one on."""

    family: str = "gpt-neo"
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 2048
    attention_types: str = "global local"
    window_size: int = 256  # tokens that a query of a local layer reads, itself included
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256

    def __post_init__(self) -> None:
        kinds = self.attention_types.split()
        if not kinds or not set(kinds) <= set(KINDS):
            raise InputError(f"attention_types are {self.attention_types[:60]!r}; expected global and local")


class GptNeo(CausalDecoder):
    """Called like GPT-2."""

    def __init__(self, config: GptNeoConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.of(config, norm_first=True, qkv_bias=False, scale=1.0, causal=True)
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.embedding_dropout,
        )
        kinds = config.attention_types.split()
        windows = {"global": None, "local": config.window_size - 1}
        layers = (
            Block(replace(layer, window=windows[kinds[number % len(kinds)]]))
            for number in range(config.num_hidden_layers)
        )
        self.decoder = Stack(layers, norm=layer.new_norm())
        normal_init(self)
        scaled_init(self.decoder.layers)


NAMES = TensorNames(
    "transformer.",
    {
        "embedding.tokens.weight": "wte.weight",
        "embedding.positions.weight": "wpe.weight",
        "decoder.norm.{p}": "ln_f.{p}",
    },
    {
        ("decoder.layers", "h"): {
            "attention.project.weight": qkv("attn.attention.", ("q_proj", "k_proj", "v_proj"), ".weight"),
            "attention.output.{p}": "attn.attention.out_proj.{p}",
            "attention_residual.norm.{p}": "ln_1.{p}",
            "ffn.inner.{p}": "mlp.c_fc.{p}",
            "ffn.outer.{p}": "mlp.c_proj.{p}",
            "ffn_residual.norm.{p}": "ln_2.{p}",
        }
    },
    copies={"lm_head.weight": "{base}wte.weight"},
    buffers=r"(transformer\.)?h\.\d+\.attn\.attention\.(masked_)?bias",
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width, depth = fields.get("hidden_size"), fields.get("num_hidden_layers")
    fields.setdefault("intermediate_size", 4 * width if isinstance(width, int) else 0)
    found: object = fields.pop("attention_types", None)
    if not isinstance(depth, int) or found is None:
        return
    layers: list[str] = []
    for entry in found if isinstance(found, list) else [None]:
        kinds, count = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(KINDS) or not 0 < len(kinds) <= depth:
            raise InputError(f"attention_types is {str(found)[:60]}; expected [[[{', '.join(KINDS)}], 6]]")
        if type(count) is not int or not 0 < count <= depth:
            raise InputError(f"attention_types repeats layers {count!r} times; expected 1 to {depth}")
        layers += kinds * count
    if len(layers) != depth:
        raise InputError(f"attention_types has {len(layers)} layers, but num_layers is {depth}")
    period = next(size for size in range(1, depth + 1) if layers == (layers[:size] * depth)[:depth])
    fields["attention_types"] = " ".join(layers[:period])


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    kinds, depth = fields["attention_types"].split(), fields["num_hidden_layers"]
    whole, rest = divmod(depth, len(kinds))
    document["attention_types"] = [entry for entry in ([kinds, whole], [kinds[:rest], 1]) if entry[0] and entry[1]]


FAMILY = Family(
    name="gpt-neo",
    title="a GPT-Neo",
    year=2021,
    description="GPT-2 with local attention in every second layer",
    model_class=GptNeo,
    config_class=GptNeoConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    checkpoints=(
        Checkpoint("EleutherAI/gpt-neo-125m", 125_198_592),
        Checkpoint("EleutherAI/gpt-neo-1.3B", 1_315_575_808, shape(2048, 24, 16)),
        Checkpoint("EleutherAI/gpt-neo-2.7B", 2_651_307_520, shape(2560, 32, 20)),
    ),
    file_format=FileFormat(
        {
            "vocab_size": "vocab_size",
            "hidden_size": "hidden_size",
            "num_hidden_layers": "num_layers",
            "num_attention_heads": "num_heads",
            "intermediate_size": "intermediate_size",
            "max_position_embeddings": "max_position_embeddings",
            "attention_types": "attention_types",
            "window_size": "window_size",
            "hidden_act": "activation_function",
            "layer_norm_eps": "layer_norm_epsilon",
            "dropout": "resid_dropout",
            "embedding_dropout": "embed_dropout",
            "attention_dropout": "attention_dropout",
            "bos_token_id": "bos_token_id",
            "eos_token_id": "eos_token_id",
        },
        lambda output_heads: "GPTNeoForCausalLM",
        lambda config: NAMES,
        {"tie_word_embeddings": True},
        optional=("intermediate_size",),
        read=read,
        write=write,
        class_prefix="GPTNeo",
        model_type="gpt_neo",
        task_heads={"SequenceClassification": {"output": "score"}},
    ),
)
