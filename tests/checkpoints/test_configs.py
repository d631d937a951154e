"""config.json: published files are read, unsupported settings are rejected by name, and no code is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints.configs import parse_config, write_config
from regard.errors import InputError
from regard.models.bert import BertConfig
from regard.models.elmo import ElmoConfig
from regard.models.gpt2 import GptConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.t5 import T5Config
from regard.models.transformer import TransformerConfig
from regard.models.vit import VitConfig

PATH = Path("model") / "config.json"

BERT: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 22,
}
ROBERTA = BERT | {"model_type": "roberta"}
DISTILBERT: dict[str, Any] = {
    "model_type": "distilbert",
    "vocab_size": 53,
    "dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 37,
    "max_position_embeddings": 22,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 53,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 22,
}
T5: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": 53,
    "d_model": 24,
    "d_kv": 5,
    "d_ff": 37,
    "num_layers": 3,
    "num_heads": 4,
}
VIT: dict[str, Any] = {
    "model_type": "vit",
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 12,
    "patch_size": 4,
}
SEQ2SEQ: dict[str, Any] = {"model_type": "regard-seq2seq", "source_size": 5, "target_size": 6}
EVERY = [BERT, ROBERTA, DISTILBERT, GPT2, T5, VIT, SEQ2SEQ]


def parse(document: dict[str, Any]) -> Any:
    return parse_config(document, PATH)


# Published files

BOOKKEEPING = {
    "_name_or_path": "someone/model",
    "architectures": ["WhateverModel"],
    "classifier_dropout": None,
    "dtype": "float16",
    "finetuning_task": "sst-2",
    "gradient_checkpointing": False,
    "id2label": {"0": "negative", "1": "positive"},
    "initializer_range": 0.02,
    "label2id": {"negative": 0, "positive": 1},
    "output_past": True,
    "problem_type": "single_label_classification",
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_type": "cls_index",
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "torch_dtype": "float32",
    "transformers_version": "4.8.2",
    "use_cache": True,
    "_attn_implementation": "eager",
    "attn_implementation": None,
}


@pytest.mark.parametrize("document", EVERY[:-1], ids=lambda document: document["model_type"])
def test_ignored_keys_do_not_change_the_config(document: dict[str, Any]) -> None:
    assert parse({**document, **BOOKKEEPING}) == parse({**document, "id2label": {"0": "a", "1": "b"}})


def test_minilm() -> None:
    document = {
        "_name_or_path": "nreimers/MiniLM-L6-H384-uncased",
        "architectures": ["BertModel"],
        "attention_probs_dropout_prob": 0.1,
        "gradient_checkpointing": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 384,
        "initializer_range": 0.02,
        "intermediate_size": 1536,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "bert",
        "num_attention_heads": 12,
        "num_hidden_layers": 6,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "transformers_version": "4.8.2",
        "type_vocab_size": 2,
        "use_cache": True,
        "vocab_size": 30522,
    }
    assert parse(document) == BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)


def test_bert_distilbert_and_roberta() -> None:
    small = {
        "vocab_size": 53,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 37,
    }
    assert parse(BERT) == BertConfig(**small, max_position_embeddings=22)
    assert parse(DISTILBERT) == BertConfig("distilbert", **small, max_position_embeddings=22, type_vocab_size=0)
    # RoBERTa's positions start after the padding id, and two rows of the table are never used.
    expected = BertConfig("roberta", **small, max_position_embeddings=20, position_offset=2, pad_token_id=1)
    assert parse(ROBERTA) == parse(ROBERTA | {"pad_token_id": 1}) == expected
    assert parse(ROBERTA | {"pad_token_id": 0}) == BertConfig(
        "roberta", **small, max_position_embeddings=21, position_offset=1
    )


def test_gpt2() -> None:
    expected = GptConfig(
        vocab_size=53,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=22,
    )
    assert parse(GPT2) == parse(GPT2 | {"n_inner": None, "n_ctx": 22}) == expected
    assert parse(GPT2 | {"n_inner": 37, "activation_function": "relu"}) == GptConfig(
        vocab_size=53,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=22,
        hidden_act="relu",
    )


def test_t5_and_t5_version_1_1() -> None:
    small = {
        "vocab_size": 53,
        "hidden_size": 24,
        "head_dim": 5,
        "intermediate_size": 37,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    }
    assert parse(T5) == T5Config(**small, num_decoder_layers=3)
    newer = T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2}
    expected = T5Config(
        **small, num_decoder_layers=2, is_gated_act=True, hidden_act="gelu-tanh", scale_decoder_outputs=False
    )
    assert parse(newer) == expected
    # transformers 5 writes the same setting under another key.
    assert parse(newer | {"tie_word_embeddings": True, "scale_decoder_outputs": False}) == expected
    assert parse(T5 | {"pad_token_id": 4}).decoder_start_token_id == 4  # type: ignore[union-attr]
    assert parse(T5 | {"pad_token_id": 4, "decoder_start_token_id": 2}).decoder_start_token_id == 2  # type: ignore[union-attr]


def test_vit_of_any_shape() -> None:
    small = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
    assert parse(VIT) == VitConfig(**small, image_size=(12, 12), patch_size=(4, 4), num_labels=2)
    oblong = VIT | {"image_size": [8, 12], "patch_size": [4, 3], "id2label": {str(i): "x" for i in range(7)}}
    assert parse(oblong) == VitConfig(**small, image_size=(8, 12), patch_size=(4, 3), num_labels=7)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("gelu", "gelu"), ("gelu_python", "gelu"), ("gelu_new", "gelu-tanh"), ("gelu_pytorch_tanh", "gelu-tanh")],
)
def test_activations(theirs: str, ours: str) -> None:
    assert parse(BERT | {"hidden_act": theirs}).hidden_act == ours  # type: ignore[union-attr]
    assert parse(T5 | {"feed_forward_proj": theirs}).hidden_act == ours  # type: ignore[union-attr]


# Writing


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(),
        BertConfig(
            hidden_act="gelu-tanh",
            layer_norm_eps=1e-5,
            dropout=0.0,
            attention_dropout=0.5,
            pad_token_id=7,
            type_vocab_size=1,
        ),
        BertConfig("distilbert", type_vocab_size=0, hidden_act="relu", pad_token_id=3),
        BertConfig("roberta", max_position_embeddings=512, position_offset=2, pad_token_id=1, type_vocab_size=1),
        GptConfig(hidden_size=24, num_attention_heads=4, intermediate_size=37, hidden_act="gelu"),
        T5Config(),
        T5Config(
            is_gated_act=True,
            hidden_act="gelu-tanh",
            scale_decoder_outputs=False,
            decoder_start_token_id=3,
            eos_token_id=4,
            pad_token_id=5,
            num_decoder_layers=2,
        ),
        T5Config(is_gated_act=True, hidden_act="gelu"),
        T5Config(is_gated_act=True, hidden_act="relu"),
        T5Config(hidden_act="gelu"),
        T5Config(
            hidden_act="gelu-tanh", head_dim=5, relative_attention_num_buckets=8, relative_attention_max_distance=6
        ),
        VitConfig(),
        VitConfig(image_size=(8, 12), patch_size=(4, 3), num_channels=1, num_labels=7),
        ElmoConfig(num_characters=0, cell_size=512),
        Seq2SeqConfig(score="additive", recipe="deck", cell="gru", feedback="identity", bidirectional=True),
        TransformerConfig(
            arrangement="halves", share_embeddings=False, target_vocab_size=9, norm_first=True, final_norm=True
        ),
    ],
    ids=lambda config: config.family,
)
def test_written_and_read_again(config: Any) -> None:
    document = write_config(config, output_heads=(), dtype="float32")
    assert parse(json.loads(json.dumps(document))) == config


@pytest.mark.parametrize(
    ("config", "heads", "architecture"),
    [
        (BertConfig(), ("pooler", "mlm_head", "nsp_head"), "BertForPreTraining"),
        (BertConfig(), ("pooler", "nsp_head"), "BertForNextSentencePrediction"),
        (BertConfig(), ("mlm_head",), "BertForMaskedLM"),
        (BertConfig(), ("pooler",), "BertModel"),
        (BertConfig("distilbert", type_vocab_size=0), ("mlm_head",), "DistilBertForMaskedLM"),
        (BertConfig("distilbert", type_vocab_size=0), (), "DistilBertModel"),
        (BertConfig("roberta", position_offset=2, pad_token_id=1), ("mlm_head",), "RobertaForMaskedLM"),
        (GptConfig(), (), "GPT2LMHeadModel"),
        (T5Config(), (), "T5ForConditionalGeneration"),
        (VitConfig(), ("classifier",), "ViTForImageClassification"),
        (VitConfig(), (), "ViTModel"),
    ],
)
def test_the_architecture_written_for_transformers(config: Any, heads: tuple[str, ...], architecture: str) -> None:
    assert write_config(config, output_heads=heads, dtype="float32")["architectures"] == [architecture]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BertConfig("roberta"), "a roberta config.json cannot store max_position_embeddings 512, position_offset 0"),
        (BertConfig("distilbert"), "a distilbert config.json cannot store type_vocab_size 2"),
        (BertConfig(position_offset=2), "a bert config.json cannot store position_offset 2"),
        (
            BertConfig("distilbert", type_vocab_size=0, layer_norm_eps=1e-5),
            "a distilbert config.json cannot store layer_norm_eps 1e-05",
        ),
        (Seq2SeqConfig(num_hidden_layers=2000), "num_hidden_layers is 2000; it must be between 1 and 1000"),
    ],
)
def test_settings_that_config_json_cannot_hold_are_refused(config: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_config(config, output_heads=(), dtype="float32")
