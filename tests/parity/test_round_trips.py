"""Transformers loads Regard's saved models without warnings and with equal weights; saving is reproducible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.checkpoints import loading
from regard.checkpoints.files import read_tensors
from regard.models.bert import BertConfig
from regard.models.deit import DeitConfig
from regard.models.family import build
from regard.models.gpt2 import GptConfig
from regard.models.t5 import T5Config
from regard.models.vit import VitConfig
from regard.nn.masks import Padded
from tests.parity.references import REFERENCES, Pair, close, ids, randomized

Pairs = Callable[[str], Pair]
SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
TEXT = {**SMALL, "vocab_size": 53}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def settings(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration with the settings of its sections as text_config.hidden_size."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        inner = settings(value, f"{prefix}{key}.") if key.endswith("_config") else {f"{prefix}{key}": value}
        found |= inner
    return found


def has_pooler(folder: Path) -> bool:
    return any("pooler" in name for name in read_tensors(folder))


def loaded_by_transformers(folder: Path) -> transformers.PreTrainedModel:
    """Load with the class named in config.json; any warning is a failure."""
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    options = (
        {"add_pooling_layer": False}
        if kind in ("BertModel", "ViTModel", "DeiTModel") and not has_pooler(folder)
        else {}
    )
    model, about = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True, **options)
    if kind.endswith("ForMaskedLM"):  # that class has no pooler, but published files contain one
        about["unexpected_keys"] = {name for name in about["unexpected_keys"] if ".pooler." not in name}
    assert not any(about.values()), about
    return model.eval()


@pytest.mark.parametrize("name", [name for name in REFERENCES if name != "jina-bert"])
def test_transformers_to_regard_and_back(pair: Pairs, name: str, tmp_path: Path) -> None:
    one = pair(name)
    regard.save(one.ours, tmp_path)
    again = loaded_by_transformers(tmp_path)
    state = again.state_dict()
    original = one.theirs.state_dict()
    tied = name in ("gpt2-bare", "bart-bare")  # saved with their output layer, which is the embedding
    if not tied:
        assert type(again) is type(one.theirs)
        assert set(state) == set(original)
    for key, tensor in original.items():
        prefix = again.base_model_prefix + "." if tied else ""
        assert torch.equal(state[prefix + key], tensor), key
    theirs, back = settings(one.theirs.config.to_dict()), settings(again.config.to_dict())
    # The last one is written for transformers 4.
    ignored = {"_name_or_path", "vision_config.dtype", "text_config.dtype", "partial_rotary_factor"}
    if name.startswith(("gpt2", "gptj")):  # Regard has no special token ids and writes an explicit n_inner
        ignored |= {"architectures", "n_inner"}
    if name.startswith(("bart", "mbart", "marian")):  # of `generate`; Regard does not force an end
        ignored |= {"architectures", "forced_eos_token_id", "bad_words_ids"}
    if name.startswith("modernbert"):  # written as transformers 4 did, which the current version reads too
        ignored |= {"global_attn_every_n_layers"}
    if name == "smollm3":  # beside no_rope_layers it has no effect
        ignored |= {"no_rope_layer_interval"}
    changed = {key: (theirs.get(key), value) for key, value in back.items() if theirs.get(key) != value}
    assert set(changed) <= ignored, changed


@pytest.mark.parametrize("name", REFERENCES)
def test_save_load_save_is_byte_identical(pair: Pairs, name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    regard.save(pair(name).ours, first)
    model, _ = regard.load(first)
    regard.save(model, second)
    assert contents(first) == contents(second)
    for (key, ours), again in zip(pair(name).ours.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, again), key


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (BertConfig(**TEXT, max_position_embeddings=20, dropout=0.2, attention_dropout=0.3, pad_token_id=3), None),
        (BertConfig(**TEXT, max_position_embeddings=20), ["mlm_head"]),
        (BertConfig(**TEXT, max_position_embeddings=20), ["pooler", "nsp_head"]),
        (BertConfig(**TEXT, max_position_embeddings=20), []),
        (BertConfig(family="distilbert", **TEXT, max_position_embeddings=20, type_vocab_size=0), None),
        (BertConfig(family="distilbert", **TEXT, max_position_embeddings=20, type_vocab_size=0), []),
        (
            BertConfig(
                family="roberta",
                **TEXT,
                max_position_embeddings=20,
                position_offset=2,
                pad_token_id=1,
                type_vocab_size=1,
            ),
            ["mlm_head"],
        ),
        (
            BertConfig(
                family="roberta",
                **TEXT,
                max_position_embeddings=20,
                position_offset=2,
                pad_token_id=1,
                type_vocab_size=1,
            ),
            ["pooler"],
        ),
        (
            BertConfig(
                family="roberta",
                **TEXT,
                max_position_embeddings=20,
                position_offset=2,
                pad_token_id=1,
                type_vocab_size=1,
            ),
            None,
        ),
        (BertConfig(**TEXT, max_position_embeddings=20), ["pooler", "mlm_head"]),
        (GptConfig(**TEXT, max_position_embeddings=20, hidden_act="gelu"), None),
        (T5Config(**TEXT, head_dim=5, num_decoder_layers=3, hidden_act="gelu-tanh"), None),
        (T5Config(**TEXT, head_dim=5, is_gated_act=True, hidden_act="gelu", scale_decoder_outputs=False), ["output"]),
        (
            T5Config(
                **TEXT,
                head_dim=5,
                is_gated_act=True,
                hidden_act="gelu-tanh",
                scale_decoder_outputs=False,
                decoder_start_token_id=4,
            ),
            [],
        ),
        (T5Config(**TEXT, head_dim=5, is_gated_act=True, scale_decoder_outputs=True), ["output"]),
        (VitConfig(**SMALL, image_size=(8, 12), patch_size=(4, 3), num_labels=5), None),
        (DeitConfig(**SMALL, image_size=(8, 12), patch_size=(4, 3), num_labels=5), None),
        (DeitConfig(**SMALL, image_size=(8, 12), patch_size=(4, 3), num_labels=5), ["classifier"]),
    ],
    ids=lambda value: (
        value.family if hasattr(value, "family") else "usual" if value is None else "+".join(value) or "bare"
    ),
)
def test_transformers_loads_new_models(config: Any, heads: list[str] | None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build(config, output_heads=heads).eval()
    regard.save(model, tmp_path)
    again, _ = regard.load(tmp_path)
    assert again.config == config
    assert {key: tensor.tolist() for key, tensor in again.state_dict().items()} == {
        key: tensor.tolist() for key, tensor in model.state_dict().items()
    }
    theirs = loaded_by_transformers(tmp_path)
    tokens, layout = ids(padding=getattr(config, "padding", 0))
    assert layout.mask is not None
    keep = layout.mask
    with torch.no_grad():
        if isinstance(config, VitConfig):
            pixels = torch.randn(3, 3, 8, 12)
            close(model.logits(model(pixels)), theirs(pixels).logits)
            return
        if isinstance(config, T5Config):
            expected = theirs(tokens, attention_mask=keep.long(), decoder_input_ids=tokens).logits
            close(model.logits(model(tokens, tokens, layout)), expected)
            return
        output = theirs(tokens, attention_mask=keep.long(), output_hidden_states=True)
        hidden = model(tokens, layout)
        close(hidden[keep], output.hidden_states[-1][keep])
        if isinstance(config, GptConfig):
            close(model.logits(hidden)[keep], output.logits[keep])
        elif model.mlm_head is not None:
            logits = output.prediction_logits if model.nsp_head is not None else output.logits
            close(model.mlm_head(hidden)[keep], logits[keep])


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5-untied", "vit", "clip"])
def test_sharded_checkpoints(pair: Pairs, name: str, tmp_path: Path) -> None:
    one = pair(name)
    one.theirs.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    model, _ = regard.load(tmp_path)
    for key, tensor in one.ours.state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), key


@pytest.mark.parametrize(
    ("kind", "unused"),
    [
        ("BertForSequenceClassification", "classifier.bias; classifier.weight"),
        ("BertForQuestionAnswering", "qa_outputs.bias; qa_outputs.weight"),
        ("DistilBertForTokenClassification", "classifier.bias; classifier.weight"),
        ("RobertaForSequenceClassification", "classifier.dense.bias; classifier.dense.weight; classifier.out_proj"),
        ("GPT2ForSequenceClassification", "score.weight"),
    ],
)
def test_unused_weights_of_fine_tuned_models_are_reported(kind: str, unused: str, tmp_path: Path) -> None:
    family = next(name for name in ("distilbert", "roberta", "bert", "gpt2") if kind.lower().startswith(name))
    theirs = randomized(getattr(transformers, kind)(REFERENCES[family]().config))
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=f"not used: {unused}"):
        model, _ = loading.load(tmp_path)
    tokens, layout = ids(padding=getattr(theirs.config, "pad_token_id", None) or 0)
    assert layout.mask is not None
    with torch.no_grad():
        base = theirs.base_model(tokens, attention_mask=layout.mask.long())
        close(model(tokens, layout)[layout.mask], base.last_hidden_state[layout.mask])


def test_pooler_of_an_image_model_round_trips(tmp_path: Path) -> None:
    theirs = randomized(transformers.ViTModel(REFERENCES["vit"]().config)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    model, _ = regard.load(tmp_path / "theirs")
    regard.save(model, tmp_path / "ours")
    again = loaded_by_transformers(tmp_path / "ours")
    pixels = torch.randn(3, 2, 8, 12)
    with torch.no_grad():
        hidden = model(pixels)
        close(model.pooler(hidden, Padded()), theirs(pixels).pooler_output)
        close(again(pixels).pooler_output, theirs(pixels).pooler_output)


def test_half_precision_is_preserved_in_the_file(pair: Pairs, tmp_path: Path) -> None:
    model, _ = regard.load(pair("bert").folder, dtype=torch.bfloat16)
    regard.save(model, tmp_path)
    theirs = loaded_by_transformers(tmp_path)
    assert theirs.dtype == torch.bfloat16
    assert regard.load(tmp_path)[0].embedding.tokens.weight.dtype == torch.float32
