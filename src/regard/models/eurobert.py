"""EuroBERT: a Llama that reads in both directions, trained to predict masked tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from regard.errors import check_choice
from regard.models import bert
from regard.models.family import Checkpoint, Family, get_family
from regard.models.llama import LlamaConfig
from regard.nn.embedding import TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class EuroBertConfig(LlamaConfig):
    """EuroBERT 210M by default."""

    causal: ClassVar[bool] = False
    family: str = "eurobert"
    vocab_size: int = 128256
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 8192
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 128001
    bos_token_id: int | None = 128000
    eos_token_id: int | None = 128001
    mask_token_id: int = 128002


class LinearMaskedLMHead(nn.Linear):
    """A masked-LM head of one linear layer, with the attributes of `bert.MaskedLMHead`."""

    def vectors(self, x: Tensor) -> Tensor:
        return x


class EuroBert(bert.TextEncoder):
    """`model(ids, layout)` returns the last hidden state (B, T, W), or (N, W) if packed."""

    def __init__(self, config: LlamaConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__()
        self.config = config
        heads = get_family(config.family).output_heads
        for head in output_heads or ():
            check_choice("head", head, heads)
        self.embedding = TextEmbedding(config.vocab_size, config.hidden_size, scaled=config.scale_embedding)
        self.encoder = Stack(config.blocks(), norm=config.layer(0).new_norm())
        self.mlm_head = None
        if "mlm_head" in (heads if output_heads is None else output_heads):
            self.mlm_head = LinearMaskedLMHead(config.hidden_size, config.vocab_size, bias=False)
        normal_init(self)
        scaled_init(self.encoder.layers)


FAMILY = Family(
    name="eurobert",
    title="a EuroBERT",
    year=2025,
    description="Llama that reads in both directions, 8,192 tokens; head: masked language model",
    model_class=EuroBert,
    config_class=EuroBertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("mlm_head",),
    pooler_activation="gelu",
    checkpoints=(Checkpoint("EuroBERT/EuroBERT-210m", 310_266_624, {"rope_theta": 250000.0}),),
)
