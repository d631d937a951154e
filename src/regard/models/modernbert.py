"""ModernBERT: an encoder with rotary positions, gated feed-forward layers and no biases.

Every third layer attends to the whole text, the others to tokens nearby; both have their own rotary frequencies.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from torch import nn

from regard.errors import check_choice
from regard.models import bert
from regard.models.family import Checkpoint, Family, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import TextEmbedding
from regard.nn.rotary import Rotary
from regard.nn.stack import Stack
from regard.nn.training import Dropout, normal_init, scaled_init


@dataclass(frozen=True)
class ModernBertConfig:
    """ModernBERT base by default. `local_attention` is the number of tokens that a local layer attends to.

    `global_layers` numbers the layers that attend to the whole text, from 0, where they are not every n-th one.
    """

    family: str = "modernbert"
    vocab_size: int = 50368
    hidden_size: int = 768
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-5
    global_attn_every_n_layers: int = 3
    global_layers: tuple[int, ...] | None = None
    local_attention: int = 128
    global_rope_theta: float = 160000.0
    local_rope_theta: float = 10000.0
    dropout: float = 0.0  # of embeddings
    attention_dropout: float = 0.0
    mlp_dropout: float = 0.0
    pad_token_id: int = 50283
    bos_token_id: int = 50281
    eos_token_id: int = 50282
    tie_word_embeddings: bool = True
    decoder_bias: bool = True  # of the masked-LM head

    def is_global(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to the whole text."""
        if self.global_layers is not None:
            return layer in self.global_layers
        return layer % self.global_attn_every_n_layers == 0


class ModernBert(bert.TextEncoder):
    """`model(ids, layout)` returns the last hidden state (B, T, W), or (N, W) if packed.

    The head is a module: `model.mlm_head(hidden)` (B, T, V).
    """

    def __init__(self, config: ModernBertConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__()
        self.config = config
        for head in output_heads or ():
            check_choice("head", head, FAMILY.output_heads)
        layer = LayerConfig.from_model_config(
            config,
            norm_first=True,
            gated=True,
            bias=False,
            norm_bias=False,
            dropout=0.0,
            ffn_dropout=config.mlp_dropout,
        )
        self.embedding = TextEmbedding(
            config.vocab_size, config.hidden_size, norm=layer.new_norm(), dropout=config.dropout
        )
        blocks = [self._block(layer, number) for number in range(config.num_hidden_layers)]
        blocks[0].attention_residual.norm = nn.Identity()  # the embeddings are normalized already
        self.encoder = Stack(blocks, norm=layer.new_norm())
        self.mlm_head = None
        if output_heads is None or "mlm_head" in output_heads:
            tokens = self.embedding.tokens if config.tie_word_embeddings else None
            decoder = tokens or nn.Embedding(config.vocab_size, config.hidden_size)
            self.mlm_head = bert.MaskedLMHead(config.hidden_size, decoder, eps=config.layer_norm_eps, bias=False)
            if not config.decoder_bias:
                self.mlm_head.bias = None
            if tokens is None:
                self.mlm_head.decoder = decoder
        normal_init(self)
        scaled_init(self.encoder.layers)

    def _block(self, layer: LayerConfig, number: int) -> Block:
        config, everything = self.config, self.config.is_global(number)
        theta = config.global_rope_theta if everything else config.local_rope_theta
        window = None if everything else config.local_attention // 2
        positions = Rotary(config.hidden_size // config.num_attention_heads, theta=theta)
        block = Block(replace(layer, window=window), positions=positions)
        block.attention_residual.dropout = Dropout(config.attention_dropout)
        return block


FAMILY = Family(
    name="modernbert",
    title="a ModernBERT",
    year=2024,
    description="encoder with rotary positions, local and global layers, 8,192 tokens; head: masked language model",
    model_class=ModernBert,
    config_class=ModernBertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("mlm_head",),
    task_transform=True,
    checkpoints=(
        Checkpoint("answerdotai/ModernBERT-base", 149_655_232),
        Checkpoint("answerdotai/ModernBERT-large", 395_881_664, shape(1024, 28, 16, 2624)),
    ),
)
