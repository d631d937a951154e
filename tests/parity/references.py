"""Tiny transformers models of every family with random weights and distinct settings.

All sizes differ, so that transposed or swapped tensors are detected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import regard
from regard.models.family import family_names
from regard.nn.masks import Padded
from tests.parity.jina_bert import JinaBertForMaskedLM

__all__ = [
    *("DECODERS", "DIFFERENCES", "LENGTHS", "REFERENCES", "VOCABULARY", "Pair", "clip_ids", "close", "ids", "pair_of"),
    *("randomized", "reference_family", "remove_padding"),
]

VOCABULARY = 53
DIFFERENCES: list[float] = []  # that `close` saw in a test, for tests/parity/table.py
LENGTHS = (9, 4, 7, 7)  # of a batch; unsorted, with two equal lengths

_EAGER = {"attn_implementation": "eager"}  # the implementation that returns attention maps
_BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 22,
    **_EAGER,
}
_MODERNBERT = _BERT | {"local_attention": 4, "pad_token_id": 2, "bos_token_id": 3, "eos_token_id": 4}  # distance 2
_DEBERTA = _BERT | {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "position_buckets": 6,  # less than the longest text
    "max_relative_positions": 8,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
# The terms have matrices of their own, each distance has a vector, and the first layer has a convolution.
_DEBERTA_V2 = _DEBERTA | {
    "share_att_key": False,
    "position_buckets": -1,
    "max_relative_positions": -1,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
    "type_vocab_size": 2,
    "conv_kernel_size": 3,
    "conv_groups": 2,
    "conv_act": "gelu",
    "legacy": False,
}
_DISTIL = {
    "vocab_size": VOCABULARY,
    "dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 37,
    "max_position_embeddings": 22,
    **_EAGER,
}
_GPT = {
    "vocab_size": VOCABULARY,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 22,
    "bos_token_id": 1,
    "eos_token_id": 2,
    **_EAGER,
}
_NEO = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_layers": 3,
    "num_heads": 4,
    "attention_types": [[["global", "local", "local"], 1]],
    "window_size": 3,  # less than most texts
    "intermediate_size": 37,
    "max_position_embeddings": 22,
    "bos_token_id": 1,
    "eos_token_id": 2,
    **_EAGER,
}
_LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 37,
    "max_position_embeddings": 22,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    **_EAGER,
}
_EXPERTS = {"experts_implementation": "eager"}  # the others need sizes that are multiples of 4
_WINDOW = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
_GEMMA = _LLAMA | {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
_GEMMA2 = _GEMMA | {
    "sliding_window": 3,  # less than most texts
    "query_pre_attn_scalar": 5,
    "final_logit_softcapping": 2.5,
}
_GEMMA3 = {key: value for key, value in _GEMMA2.items() if key != "final_logit_softcapping"} | {
    "sliding_window_pattern": 3,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
    },
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "d_kv": 5,  # 4 heads of this size do not give the width
    "d_ff": 37,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,  # less than the longest text
    "decoder_start_token_id": 3,
    **_EAGER,
}
_BART = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 41,
    "max_position_embeddings": 22,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,  # Regard's searches may end without the end token
    **_EAGER,
}
_MARIAN = {key: value for key, value in _BART.items() if key != "bos_token_id"} | {
    "pad_token_id": 3,
    "eos_token_id": 0,
    "decoder_start_token_id": 3,
    "scale_embedding": True,
    "activation_function": "silu",
}
_SEPARATE = {"decoder_vocab_size": VOCABULARY, "share_encoder_decoder_embeddings": False}
_VIT = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "num_channels": 2,
    "image_size": (8, 12),
    "patch_size": (4, 3),
    **_EAGER,
}
_CLIP = {
    "vision_config": {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "num_channels": 3,
        "image_size": 10,
        "patch_size": 4,
        "projection_dim": 11,
    },
    "text_config": {
        "vocab_size": VOCABULARY,
        "hidden_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "intermediate_size": 31,
        "max_position_embeddings": 22,
        "bos_token_id": 50,
        "eos_token_id": 51,
        "projection_dim": 11,
    },
    "projection_dim": 11,
    **_EAGER,
}


def _legacy_clip() -> transformers.PreTrainedModel:
    """A CLIP of the time when configurations had a wrong id of the end token, and with another activation."""
    text = _CLIP["text_config"] | {"eos_token_id": 2, "hidden_act": "gelu"}  # type: ignore[operator]
    vision = _CLIP["vision_config"] | {"hidden_act": "gelu", "layer_norm_eps": 1e-3}  # type: ignore[operator]
    settings = _CLIP | {"text_config": text, "vision_config": vision}
    return transformers.CLIPModel(transformers.CLIPConfig(**settings))


def _untied_t5() -> transformers.PreTrainedModel:
    """T5 1.1: a gated feed-forward network and a separate output matrix."""
    settings = _T5 | {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "num_layers": 2,
        "num_decoder_layers": 3,
    }
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**settings))
    model.lm_head.weight = nn.Parameter(torch.empty(VOCABULARY, 24))
    return model


def _biased(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """With a bias of the logits, which is a buffer."""
    model.final_logits_bias.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    return model


REFERENCES: dict[str, Callable[[], transformers.PreTrainedModel]] = {
    "bert": lambda: transformers.BertForPreTraining(transformers.BertConfig(**_BERT)),
    "bert-bare": lambda: transformers.BertModel(transformers.BertConfig(**_BERT, hidden_act="relu")),
    "bert-masked": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_BERT, hidden_act="gelu_new")),
    "bert-next": lambda: transformers.BertForNextSentencePrediction(
        transformers.BertConfig(**_BERT, layer_norm_eps=1e-3, type_vocab_size=3)
    ),
    "distilbert": lambda: transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**_DISTIL)),
    "distilbert-bare": lambda: transformers.DistilBertModel(
        transformers.DistilBertConfig(**_DISTIL, activation="relu")
    ),
    "roberta": lambda: transformers.RobertaForMaskedLM(transformers.RobertaConfig(**_BERT, type_vocab_size=1)),
    # Its head always uses gelu, and positions begin after the padding id.
    "roberta-relu": lambda: transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(**_BERT, hidden_act="relu", pad_token_id=4)
    ),
    "roberta-bare": lambda: transformers.RobertaModel(transformers.RobertaConfig(**_BERT, type_vocab_size=1)),
    "xlm-roberta": lambda: transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**_BERT)),
    "xlm-roberta-bare": lambda: transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**_BERT)),
    "camembert": lambda: transformers.CamembertForMaskedLM(transformers.CamembertConfig(**_BERT, type_vocab_size=1)),
    "mpnet": lambda: transformers.MPNetForMaskedLM(transformers.MPNetConfig(**_BERT, hidden_act="relu")),
    "mpnet-bare": lambda: transformers.MPNetModel(transformers.MPNetConfig(**_BERT)),
    "electra": lambda: transformers.ElectraForPreTraining(
        transformers.ElectraConfig(**_BERT, embedding_size=10, hidden_act="relu")
    ),
    "electra-masked": lambda: transformers.ElectraForMaskedLM(
        transformers.ElectraConfig(**_BERT, embedding_size=24, hidden_act="gelu_new")
    ),
    "electra-small": lambda: transformers.ElectraForMaskedLM(transformers.ElectraConfig(**_BERT, embedding_size=10)),
    "albert": lambda: transformers.AlbertForPreTraining(transformers.AlbertConfig(**_BERT, embedding_size=10)),
    "albert-masked": lambda: transformers.AlbertForMaskedLM(
        transformers.AlbertConfig(**_BERT, embedding_size=24, num_hidden_groups=2, hidden_act="relu")
    ),
    "albert-bare": lambda: transformers.AlbertModel(
        transformers.AlbertConfig(**_BERT, embedding_size=10, num_hidden_groups=3)
    ),
    "nomic-bert": lambda: transformers.NomicBertForMaskedLM(transformers.NomicBertConfig(**_BERT)),
    "nomic-bert-bare": lambda: transformers.NomicBertModel(
        transformers.NomicBertConfig(**_BERT, hidden_act="gelu", layer_norm_eps=1e-3, type_vocab_size=3)
    ),
    "gte": lambda: transformers.GteForMaskedLM(transformers.GteConfig(**_BERT, hidden_act="relu", type_vocab_size=2)),
    "gte-bare": lambda: transformers.GteModel(
        transformers.GteConfig(
            **_BERT, type_vocab_size=0, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 1.5}
        )
    ),
    "eurobert": lambda: transformers.EuroBertForMaskedLM(
        transformers.EuroBertConfig(
            **_LLAMA | {"pad_token_id": 4},
            mask_token_id=3,
            classifier_pooling="bos",
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        )
    ),
    "eurobert-bare": lambda: transformers.EuroBertModel(
        transformers.EuroBertConfig(
            **_LLAMA | {"pad_token_id": 4, "num_key_value_heads": 4},
            mask_token_id=3,
            attention_bias=True,
            classifier_pooling="bos",
        )
    ),
    "embeddinggemma": lambda: transformers.Gemma3TextModel(
        transformers.Gemma3TextConfig(
            **_GEMMA3 | {"sliding_window": 4, "pad_token_id": 0}, use_bidirectional_attention=True
        )
    ),
    "jina-bert": lambda: JinaBertForMaskedLM(**_BERT | {"num_attention_heads": 6}),
    "modernbert": lambda: transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**_MODERNBERT)),
    "modernbert-bare": lambda: transformers.ModernBertModel(
        transformers.ModernBertConfig(**_MODERNBERT, global_attn_every_n_layers=2, hidden_activation="silu")
    ),
    # Another pattern of layers, and an output matrix of its own without a bias.
    "modernbert-untied": lambda: transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            **_MODERNBERT | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
            tie_word_embeddings=False,
            decoder_bias=False,
        )
    ),
    "deberta-v2": lambda: transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**_DEBERTA)),
    "deberta-v2-conv": lambda: transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**_DEBERTA_V2)),
    "deberta-v2-c2p": lambda: transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config(
            **_DEBERTA | {"pos_att_type": ["c2p"], "position_buckets": 16, "max_relative_positions": 20}
        )
    ),
    "deberta-v2-p2c": lambda: transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config(
            **_DEBERTA_V2 | {"pos_att_type": ["p2c"], "max_relative_positions": 5, "conv_act": "tanh"}
        )
    ),
    "deberta-v2-bare": lambda: transformers.DebertaV2Model(transformers.DebertaV2Config(**_DEBERTA)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**_GPT)),
    "gpt2-relu": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**_GPT, n_inner=37, activation_function="relu", layer_norm_epsilon=1e-3)
    ),
    "gpt2-bare": lambda: transformers.GPT2Model(transformers.GPT2Config(**_GPT)),
    "openai-gpt": lambda: transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**_GPT)),
    "gpt-neo": lambda: transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(**_NEO)),
    "gptj": lambda: transformers.GPTJForCausalLM(transformers.GPTJConfig(**_GPT, rotary_dim=4)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA)),
    "llama-tied": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **_LLAMA | {"eos_token_id": [2, 3], "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
            head_dim=10,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8,
            },
        )
    ),
    "llama-bare": lambda: transformers.LlamaModel(
        transformers.LlamaConfig(
            **_LLAMA,
            hidden_act="gelu_new",
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 500.0,
                "factor": 4.0,
                "attention_factor": 1.3,
                "beta_fast": 3.0,
                "beta_slow": 0.5,
                "original_max_position_embeddings": 8,
            },
        )
    ),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**_LLAMA, sliding_window=4)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_LLAMA, **_WINDOW)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            **_LLAMA,
            head_dim=8,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
        )
    ),
    "gpt-neox": lambda: transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            **_BERT, bos_token_id=1, eos_token_id=2, rope_parameters={"partial_rotary_factor": 0.7, "rope_theta": 500.0}
        )
    ),
    "gpt-neox-sequential": lambda: transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            **_BERT,
            eos_token_id=2,
            use_parallel_residual=False,
            attention_bias=False,
            hidden_act="gelu_new",
            rotary_pct=0.4,
        )
    ),
    "olmo2": lambda: transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**_LLAMA)),
    "granite": lambda: transformers.GraniteForCausalLM(
        transformers.GraniteConfig(
            **_LLAMA,
            embedding_multiplier=3.0,
            attention_multiplier=0.3,
            residual_multiplier=0.22,
            logits_scaling=1.7,
            tie_word_embeddings=True,
        )
    ),
    "smollm3": lambda: transformers.SmolLM3ForCausalLM(
        transformers.SmolLM3Config(**_LLAMA, no_rope_layer_interval=2, tie_word_embeddings=True)
    ),
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**_LLAMA, **_EXPERTS, num_local_experts=5, sliding_window=4)
    ),
    "qwen2-moe": lambda: transformers.Qwen2MoeForCausalLM(
        transformers.Qwen2MoeConfig(
            **_LLAMA,
            **_EXPERTS,
            num_experts=5,
            num_experts_per_tok=3,
            moe_intermediate_size=11,
            shared_expert_intermediate_size=14,
            mlp_only_layers=[0],
        )
    ),
    "qwen3-moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(
            **_LLAMA,
            **_EXPERTS,
            head_dim=8,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=11,
            norm_topk_prob=True,
            decoder_sparse_step=2,
        )
    ),
    "phi3": lambda: transformers.Phi3ForCausalLM(
        transformers.Phi3Config(
            **_LLAMA,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.7},
        )
    ),
    "gemma": lambda: transformers.GemmaForCausalLM(transformers.GemmaConfig(**_GEMMA)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**_GEMMA2, attn_logit_softcapping=0.7)),
    "gemma2-uncapped": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            **_GEMMA2 | {"final_logit_softcapping": None, "tie_word_embeddings": False, "attention_bias": True},
            attn_logit_softcapping=None,
        )
    ),
    "gemma3-text": lambda: transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**_GEMMA3)),
    "gemma3-text-bare": lambda: transformers.Gemma3TextModel(
        transformers.Gemma3TextConfig(
            **_GEMMA3 | {"rope_parameters": None, "sliding_window_pattern": 2, "tie_word_embeddings": False}
        )
    ),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**_T5)),
    "t5-untied": _untied_t5,
    "t5-gelu": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(**_T5, feed_forward_proj="gelu", layer_norm_epsilon=1e-2)
    ),
    "bart": lambda: _biased(transformers.BartForConditionalGeneration(transformers.BartConfig(**_BART))),
    "bart-bare": lambda: transformers.BartModel(
        transformers.BartConfig(**_BART, scale_embedding=True, activation_function="relu")
    ),
    "mbart": lambda: _biased(
        transformers.MBartForConditionalGeneration(transformers.MBartConfig(**_BART, scale_embedding=True))
    ),
    "marian": lambda: _biased(transformers.MarianMTModel(transformers.MarianConfig(**_MARIAN))),
    "marian-separate": lambda: _biased(
        transformers.MarianMTModel(transformers.MarianConfig(**_MARIAN | {"vocab_size": 57}, **_SEPARATE))
    ),
    "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**_VIT, num_labels=7)),
    "vit-square": lambda: transformers.ViTModel(
        transformers.ViTConfig(**_VIT | {"image_size": 10, "patch_size": 4}, hidden_act="gelu_new"),
        add_pooling_layer=False,
    ),
    "deit": lambda: transformers.DeiTForImageClassificationWithTeacher(transformers.DeiTConfig(**_VIT, num_labels=7)),
    "deit-plain": lambda: transformers.DeiTForImageClassification(transformers.DeiTConfig(**_VIT, num_labels=7)),
    "deit-bare": lambda: transformers.DeiTModel(transformers.DeiTConfig(**_VIT)),
    "clip": lambda: transformers.CLIPModel(transformers.CLIPConfig(**_CLIP)),
    "clip-legacy": _legacy_clip,
}


# The causal language models, which tests/parity/test_decoders.py compares.
DECODERS = ["gpt2", "gpt2-relu", "gpt2-bare", "openai-gpt", "gpt-neo", "gptj"]
DECODERS += ["llama", "llama-tied", "llama-bare", "mistral", "qwen2", "qwen3", "phi3"]
DECODERS += ["gpt-neox", "gpt-neox-sequential", "olmo2", "granite", "smollm3", "mixtral", "qwen2-moe", "qwen3-moe"]
DECODERS += ["gemma", "gemma2", "gemma2-uncapped", "gemma3-text", "gemma3-text-bare"]


def reference_family(name: str) -> str:
    """The family of a reference, whose name begins with it."""
    return max((family for family in family_names() if f"{name}-".startswith(f"{family}-")), key=len)


@dataclass(frozen=True, eq=False)
class Pair:
    """The same model twice: the transformers model, and Regard's model loaded from its saved folder."""

    theirs: Any
    ours: Any
    folder: Path


def pair_of(name: str, folder: Path) -> Pair:
    theirs = randomized(REFERENCES[name]())
    theirs.save_pretrained(folder)
    ours, _ = regard.load(folder)
    return Pair(theirs, ours, folder)


def randomized(model: transformers.PreTrainedModel, seed: int = 0) -> transformers.PreTrainedModel:
    """Randomize every parameter: with initial values, a missing norm or bias would not be noticed."""
    generator = torch.Generator().manual_seed(seed)
    # Smaller where transformers always computes in float32, and for T5 and GPT-Neo, which do not scale their scores:
    # large weights amplify rounding errors.
    small = model.config.model_type in ("t5", "gpt_neo", "modernbert", "nomic_bert", "gte") or hasattr(
        model.config, "rms_norm_eps"
    )
    size = 0.15 if small else 0.2 if model.config.model_type == "mbart" else 0.3
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:  # Marian's sinusoids
                continue
            numbers = size * torch.randn(parameter.shape, generator=generator)
            if getattr(model.config, "scale_embedding", False) and name.endswith(("shared.weight", "tokens.weight")):
                numbers *= model.config.d_model**-0.5  # otherwise each token predicts itself, whatever the source
            is_norm = "norm" in name.lower() or (".ln_" in name and model.config.model_type == "openai-gpt")
            is_gain = is_norm and name.endswith("weight") and not model.config.model_type.startswith("gemma")
            parameter.copy_(1 + numbers if is_gain else numbers)  # Gemma adds 1 itself
    return model.eval()


def ids(*, seed: int = 1, padding: int = 0) -> tuple[Tensor, Padded]:
    """A right-padded batch of LENGTHS."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    layout = Padded.from_lengths(LENGTHS)
    assert layout.mask is not None
    return tokens.masked_fill(~layout.mask, padding), layout


def clip_ids() -> tuple[Tensor, Padded]:
    """A right-padded batch of LENGTHS that CLIP's tokenizer could make: each text ends with the highest id."""
    tokens, layout = ids()
    tokens = tokens.clamp(max=49)
    tokens[:, 0] = 50
    tokens[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1] = 51
    return tokens, layout


def remove_padding(x: Tensor, layout: Padded) -> Tensor:
    """The rows of (B, T, ...) that are tokens, as in a packed batch."""
    assert layout.mask is not None
    return x[layout.mask]


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    """Equal to `tolerance`, absolute for small numbers and relative for large ones."""
    if ours.shape == theirs.shape and ours.numel():
        DIFFERENCES.append(float(((ours - theirs).detach().abs() / (1 + theirs.detach().abs())).max()))
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
