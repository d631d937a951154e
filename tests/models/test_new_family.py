"""A new model family takes two files, its network and the format of its files.

Rotary positions, grouped queries and gated layers need no other changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

import regard
from regard import models
from regard.checkpoints import formats
from regard.events import drain
from regard.inference.causal_lm import CausalScorer, ScoredIds
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator
from regard.interpret.attention.recording import record_attention
from regard.models import family as registry
from regard.models.family import build, can, families, get_family
from regard.nn.fast.fused_step import FusedStep, supports_fused_step
from regard.nn.masks import Padded
from regard.text import Tokenizer
from tests.inference.generation.folders import gpt_folder

FAMILY = """
from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.models.family import Family
from regard.models.gpt2 import Gpt
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import TextEmbedding
from regard.nn.rotary import Rotary
from regard.nn.stack import Stack


@dataclass(frozen=True)
class RotaryConfig:
    family: str = "rotary"
    vocab_size: int = 32000
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    intermediate_size: int = 96
    max_position_embeddings: int = 128
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class RotaryModel(Gpt):
    def __init__(self, config: RotaryConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        layer = LayerConfig(
            width=config.hidden_size, heads=config.num_attention_heads, key_value_heads=config.num_key_value_heads,
            ffn=config.intermediate_size, norm_first=True, norm="rms", eps=config.layer_norm_eps,
            activation=config.hidden_act, gated=True, bias=False, causal=True, window=2, query_key_norm=True,
        )
        rotary = Rotary(config.hidden_size // config.num_attention_heads, theta=config.rope_theta)
        blocks = (Block(layer, positions=rotary) for _ in range(config.num_hidden_layers))
        self.embedding = TextEmbedding(config.vocab_size, config.hidden_size)
        self.decoder = Stack(blocks, norm=layer.new_norm())


FAMILY = Family(
    name="rotary",
    title="a Rotary",
    year=2023,
    description="decoder with rotary positions and grouped queries",
    model_class=RotaryModel,
    config_class=RotaryConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
)
"""
FORMAT = """
from regard.checkpoints.file_format import FileFormat, TensorNames, keys_of
from regard.models.rotary import RotaryConfig

LAYER = {
    "attention.project.weight": tuple(f"self_attn.{name}_proj.weight" for name in "qkv"),
    "attention.query_norm.weight": "self_attn.q_norm.weight",
    "attention.key_norm.weight": "self_attn.k_norm.weight",
    "attention.output.weight": "self_attn.o_proj.weight",
    "attention_residual.norm.weight": "input_layernorm.weight",
    "ffn.inner.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "ffn.outer.weight": "mlp.down_proj.weight",
    "ffn_residual.norm.weight": "post_attention_layernorm.weight",
}
NAMES = TensorNames(
    "model.",
    {"embedding.tokens.weight": "embed_tokens.weight", "decoder.norm.weight": "norm.weight"},
    {("decoder.layers", "layers"): LAYER},
    copies={"lm_head.weight": "{base}embed_tokens.weight"},
    qkv_sizes=(64, 32, 32),
)
FORMAT = FileFormat(
    keys_of(RotaryConfig, layer_norm_eps="rms_norm_eps"),
    NAMES,
    class_prefix="Llama",
    classes={(): "ForCausalLM"},
    task_heads={"SequenceClassification": {"output": "score"}},
)
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for folder, text in (("models", FAMILY), ("formats", FORMAT)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rotary.py").write_text(dedent(text), encoding="utf-8")
    caches = (registry.family_names, registry.families, registry.known_checkpoints, registry.pretrainable_families)
    with monkeypatch.context() as patch:
        patch.setattr(models, "__path__", [*models.__path__, str(tmp_path / "models")])
        patch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "formats")])
        for function in caches:
            function.cache_clear()
        yield get_family("rotary")
    for function in caches:
        function.cache_clear()


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer.open(gpt_folder(tmp_path / "gpt"))


@pytest.fixture
def model(family: Any, tokenizer: Tokenizer) -> Any:
    torch.manual_seed(0)
    return build(family.config_class(vocab_size=tokenizer.size)).eval()


def test_new_family_is_registered_and_can_be_saved(
    family: Any, model: Any, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    assert families()["rotary"] is family and can(model, "causal-lm")
    regard.save(model, tmp_path / "saved", tokenizer)
    again, read = regard.load(tmp_path / "saved")
    assert again.config == model.config and read is not None
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    torch.testing.assert_close(again(ids), model(ids))


def test_cached_decoding_equals_the_full_forward_pass(model: Any) -> None:
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    whole = model.logits(model(ids))
    logits, state = model.start(ids[:, :2])
    for position in range(2, 5):
        torch.testing.assert_close(logits, whole[:, position - 1])
        logits, state = model.step(ids[:, position], state)
    torch.testing.assert_close(logits, whole[:, -1])


def test_fused_steps_equal_steps_of_the_stack(model: Any) -> None:
    """Prompts of different lengths, with a window shorter than them."""
    ids, layout = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 0, 0, 0], [6, 5, 3, 0, 0]]), Padded.from_lengths([5, 2, 3])
    with torch.inference_mode():
        assert supports_fused_step(model.decoder)
        fused = FusedStep(model.decoder)
        for rows in (ids, ids[:1]):
            both = [model.start(rows, None if len(rows) == 1 else layout)[1] for _ in range(2)]
            for token in (7, 8, 9):
                tokens = torch.full((len(rows),), token)
                expected, _ = model.step(tokens, both[0])
                found = model.logits(fused(model.embed_next(tokens, both[1])[:, 0], both[1]))
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_new_family_generates_scores_embeds_and_records_attention(model: Any, tokenizer: Tokenizer) -> None:
    generator = TextGenerator(model, tokenizer)
    prompt = generator.encode_prompt("the film", max_new_tokens=5)
    stream = GenerationStream(generator, prompt, sampling=Sampling(temperature=0.7))
    list(stream)
    assert stream.texts[0].tokens and drain(generator.search_steps(prompt, beam=Beam(num_beams=2)))
    with torch.inference_mode():
        (score,) = CausalScorer.of(model, tokenizer, doing="scoring").score([ScoredIds([1, 2, 3], 1)])
    assert score.log_probability < 0
    assert regard.Embedder((model, tokenizer)).transform(["a good film"]).shape == (1, 64)
    (maps,) = record_attention(model, tokenizer, "the film").maps
    assert (len(maps.layers), len(maps.heads)) == (2, 4)
