"""config.json files that are refused, with a short message that names the key and without running any code."""

from __future__ import annotations

from typing import Any

import pytest

from regard.errors import InputError
from tests.checkpoints.test_configs import BERT, DISTILBERT, EVERY, GPT2, PATH, ROBERTA, SEQ2SEQ, T5, VIT, parse


def assert_refused(document: dict[str, Any], message: str) -> None:
    """Assert a short error that names the file and contains `message`."""
    with pytest.raises(InputError, match=message) as caught:
        parse(document)
    assert str(caught.value).startswith(f"{PATH}: ")
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (BERT | {"hidden_act": "rellu"}, "hidden_act is 'rellu'; did you mean 'relu'"),
        (BERT | {"hidden_act": "gated-gelu"}, "hidden_act is 'gated-gelu'; did you mean 'gelu'"),
        (T5 | {"feed_forward_proj": "gated-rellu"}, "feed_forward_proj is 'gated-rellu'; did you mean 'relu'"),
        (T5 | {"feed_forward_proj": "odd-relu"}, "feed_forward_proj is 'odd-relu'; did you mean 'relu'"),
        (GPT2 | {"activation_function": {"a": 1}}, r"activation_function is {'a': 1}; choices: gelu, "),
    ],
)
def test_unsupported_activation(document: dict[str, Any], message: str) -> None:
    assert_refused(document, message)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bret", "model_type is 'bret', which Regard does not know; did you mean 'bert'"),
        ("distillbert", "did you mean 'distilbert'"),
        ("zamba", "model_type is 'zamba', .*choices: .*bert, .*gpt2, .*regard-elmo, "),
        ("elmo", "model_type is 'elmo', .*did you mean 'regard-elmo'"),
        (None, "model_type is None, "),
        (["bert"], r"model_type is \['bert'\], "),
        ("b" * 10_000_000, "model_type is 'bbb"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_unsupported_family(kind: object, message: str) -> None:
    assert_refused(BERT | {"model_type": kind}, message)


def test_missing_family() -> None:
    assert_refused({}, "model_type is None")


@pytest.mark.parametrize("document", EVERY, ids=lambda document: document["model_type"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto_map", {"AutoModel": "modeling.Evil"}),
        ("custom_pipelines", {"evil": {"impl": "evil.Pipeline"}}),
        ("custom_generate", "someone/repo"),
        ("trust_remote_code", True),
        ("code_revision", "main"),
        ("_attn_implementation", "someone/kernel"),
        ("_attn_implementation_internal", "someone/kernel"),
        ("attn_implementation", "someone/kernel:function"),
        ("attn_implementation", {"decoder": "someone/kernel"}),
    ],
)
def test_keys_that_name_code_are_refused(document: dict[str, Any], key: str, value: object) -> None:
    assert_refused(document | {key: value}, f"'{key}' names (code to run|a kernel to download).*remove")


@pytest.mark.parametrize("key", ["auto_map", "trust_remote_code", "custom_pipelines"])
def test_empty_code_fields_are_accepted(key: str) -> None:
    for nothing in (None, False, {}):
        assert parse(BERT | {key: nothing}) == parse(BERT)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            BERT | {"position_embedding_type": "relative_key"},
            "is 'relative_key'; .*bert supports only",
        ),
        (BERT | {"is_decoder": True}, "is_decoder is True; Regard's bert supports only False"),
        (BERT | {"add_cross_attention": True}, "add_cross_attention is True"),
        (ROBERTA | {"is_decoder": True}, "is_decoder is True; Regard's roberta supports only False"),
        (
            ROBERTA | {"position_embedding_type": "relative_key_query"},
            "position_embedding_type is 'relative_key_query'",
        ),
        (GPT2 | {"scale_attn_weights": False}, "scale_attn_weights is False; Regard's gpt2 supports only True"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (GPT2 | {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention is True"),
        (T5 | {"is_decoder": True}, "is_decoder is True"),
        (VIT | {"qkv_bias": False}, "qkv_bias is False; Regard's vit supports only True"),
        (BERT | {"quantization_config": {"load_in_8bit": True}}, "quantization_config is {'load_in_8bit': True}"),
    ],
)
def test_unsupported_arithmetic(document: dict[str, Any], message: str) -> None:
    assert_refused(document, message)


def test_null_settings_are_unset() -> None:
    unset = {"position_embedding_type": None, "is_decoder": None, "hidden_act": None, "layer_norm_eps": None}
    assert parse(BERT | unset) == parse(BERT)


SIZES = [
    (BERT, "hidden_size"),
    (BERT, "num_hidden_layers"),
    (BERT, "vocab_size"),
    (ROBERTA, "max_position_embeddings"),
    (DISTILBERT, "n_heads"),
    (GPT2, "n_embd"),
    (T5, "d_kv"),
    (T5, "num_decoder_layers"),
    (VIT, "num_channels"),
    (SEQ2SEQ, "hidden_size"),
]


@pytest.mark.parametrize("value", ["24", "", True, False, 24.0, 24.5, [24], {"n": 24}], ids=repr)
@pytest.mark.parametrize(("document", "key"), SIZES, ids=lambda value: value if isinstance(value, str) else None)
def test_sizes_must_be_integers(document: dict[str, Any], key: str, value: object) -> None:
    assert_refused(
        document | {key: value}, rf"{key}: Input should be a valid integer|{key} is -?\d+; it must be between"
    )


@pytest.mark.parametrize("value", [0, -1, 10**9, 10**30], ids=repr)
@pytest.mark.parametrize(("document", "key"), SIZES, ids=lambda value: value if isinstance(value, str) else None)
def test_sizes_are_limited(document: dict[str, Any], key: str, value: int) -> None:
    assert_refused(document | {key: value}, rf"{key} is -?\d+; it must be between 1 and|{key}: .*integer")


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, float("nan"), float("inf"), "0.1", True, None], ids=repr)
def test_dropout_must_be_a_probability(value: object) -> None:
    if value is None:
        assert parse(BERT | {"hidden_dropout_prob": None}) == parse(BERT)
    else:
        assert_refused(BERT | {"hidden_dropout_prob": value}, "hidden_dropout_prob")
    assert parse(BERT | {"hidden_dropout_prob": 0}).dropout == 0


@pytest.mark.parametrize("value", [0, -1e-12, 1, float("nan"), "1e-12"], ids=repr)
def test_eps_must_be_small_and_positive(value: object) -> None:
    assert_refused(BERT | {"layer_norm_eps": value}, "layer_norm_eps")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (BERT | {"num_attention_heads": 5}, "5 heads do not divide a width of 24"),
        (GPT2 | {"n_head": 7}, "7 heads do not divide a width of 24"),
        (VIT | {"num_attention_heads": 48}, "48 heads do not divide a width of 24"),
        (ROBERTA | {"pad_token_id": "1"}, "pad_token_id: Input should be a valid integer"),
        (ROBERTA | {"pad_token_id": -1}, "pad_token_id is -1"),
        (ROBERTA | {"pad_token_id": 40}, "max_position_embeddings is -19; it must be between 1"),
        (VIT | {"image_size": [8, 12, 3]}, "image_size: "),
        (VIT | {"image_size": [8, 10**9]}, "image_size is 1000000000; it must be between 1 and 10000000"),
        (VIT | {"patch_size": 0}, "patch_size is 0; it must be between"),
        (VIT | {"patch_size": [4, 13]}, r"a patch of \(4, 13\) pixels is larger than the image, \(12, 12\)"),
        (T5 | {"relative_attention_num_buckets": 2}, "2 buckets for distances up to 128; expected 4 or more"),
        (T5 | {"relative_attention_max_distance": 16}, "32 buckets for distances up to 16; .*below twice"),
        (T5 | {"decoder_start_token_id": 53}, "decoder_start_token_id is 53, but the last token id is 52"),
        (T5 | {"tie_word_embeddings": "no"}, "tie_word_embeddings: Input should be a valid boolean"),
        (SEQ2SEQ | {"decoder_start_token_id": 6}, "decoder_start_token_id is 6, but the last token id is 5"),
        (SEQ2SEQ | {"score": "dots"}, "score: Input should be 'none', 'dot', 'general' or 'additive'"),
        (SEQ2SEQ | {"unit": 5}, "unknown key 'unit'; "),
        (SEQ2SEQ | {"k" * 100_000: 5}, r"unknown key 'kkk.*\.\.\.; choices: "),
        (SEQ2SEQ | {"bidirectional": 1}, "bidirectional: Input should be a valid boolean"),
        (
            {"model_type": "regard-transformer", "vocab_size": 9, "target_vocab_size": 8},
            "the config: .*a shared embedding needs one vocabulary",
        ),
    ],
)
def test_inconsistent_sizes(document: dict[str, Any], message: str) -> None:
    assert_refused(document, message)


@pytest.mark.parametrize("document", EVERY[:-1], ids=lambda document: document["model_type"])
def test_missing_sizes_are_named(document: dict[str, Any]) -> None:
    key = next(key for key in document if "layer" in key)
    assert_refused({k: v for k, v in document.items() if k != key}, f"{key} is missing: this is not a complete")
    wide = next(key for key in document if key in ("hidden_size", "dim", "n_embd", "d_model"))
    assert_refused({k: v for k, v in document.items() if k not in (key, wide)}, f"{wide}, {key} is missing")


def test_all_errors_are_reported_at_once() -> None:
    assert_refused(BERT | {"vocab_size": "many", "num_hidden_layers": 2.5}, "vocab_size: .*num_hidden_layers: ")


def test_long_values_are_shortened_in_messages() -> None:
    assert_refused(BERT | {"vocab_size": "9" * 5_000_000}, r"vocab_size: .*999\.\.\.")
    assert_refused(BERT | {"hidden_act": "x" * 5_000_000}, r"hidden_act is 'xxx.*\.\.\.")
    assert_refused(BERT | {"position_embedding_type": ["x"] * 100_000}, r"position_embedding_type is \['x', .*\.\.\.")
