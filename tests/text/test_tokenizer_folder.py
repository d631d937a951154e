"""Tokenizer configuration files: their meaning, and errors for invalid values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard.text.tokenizer_folder import TokenizerConfig, read_object, read_text


def settings(folder: Path, **values: Any) -> TokenizerConfig:
    (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    return TokenizerConfig.open(folder)


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (512, 512),
        (512.0, 512),
        (None, None),
        (int(1e30), None),
        (1e30, None),
        (0, None),
        (-1, None),
    ],
)
def test_max_length(tmp_path: Path, value: object, length: int | None) -> None:
    assert settings(tmp_path, model_max_length=value).max_length == length
    assert settings(tmp_path).max_length is None


@pytest.mark.parametrize("value", ["512", True, [512]])
def test_max_length_of_invalid_type_is_rejected(tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=r"tokenizer_config.json: model_max_length should be a number"):
        _ = settings(tmp_path, model_max_length=value).max_length


def test_boolean_settings(tmp_path: Path) -> None:
    made = settings(tmp_path, yes=True, no=False, null=None, wrong="yes")
    assert [made.flag(key) for key in ("yes", "no", "null", "absent")] == [True, False, None, None]
    with pytest.raises(InputError, match=r"tokenizer_config.json: wrong .*true or false, not 'yes'"):
        made.flag("wrong")


def test_model_input_names(tmp_path: Path) -> None:
    assert settings(tmp_path).inputs == ()
    assert settings(tmp_path, model_input_names=["input_ids"]).inputs == ("input_ids",)
    with pytest.raises(InputError, match="model_input_names"):
        _ = settings(tmp_path, model_input_names=[1]).inputs


@pytest.mark.parametrize(
    ("vocabulary", "roles"),
    [
        ({"[CLS]", "[SEP]", "[UNK]"}, {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}),
        (
            {"<s>", "</s>", "<mask>"},
            {"cls_token": "<s>", "bos_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "mask_token": "<mask>"},
        ),
        ({"<|endoftext|>"}, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}),
        (
            {"<|startoftext|>", "<|endoftext|>"},
            {
                "bos_token": "<|startoftext|>",
                **dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>"),
            },
        ),
        ({"<pad>", "</s>", "<unk>"}, {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}),
        ({"a"}, {}),
    ],
)
def test_special_tokens_of_a_vocabulary(tmp_path: Path, vocabulary: set[str], roles: dict[str, str]) -> None:
    found = settings(tmp_path).tokens(vocabulary)
    assert {role: token.content for role, token in found.items()} == roles


def test_files_override_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "<m>", "pad_token": "<q>"}')
    made = settings(tmp_path, pad_token={"content": "<p>", "lstrip": True}, sep_token=None, eos_token="<absent>")
    found = made.tokens({"[CLS]", "[SEP]", "[MASK]", "<p>", "<q>", "<m>"})
    assert {role: token.content for role, token in found.items()} == {
        "pad_token": "<q>",
        "mask_token": "<m>",
        "cls_token": "[CLS]",
    }
    made = settings(tmp_path, pad_token={"content": "<p>", "lstrip": True}, added_tokens_decoder={})
    found = made.tokens({"[CLS]", "[SEP]", "[MASK]", "<p>", "<q>", "<m>"})
    assert {found[role].content for role in ("pad_token", "mask_token")} == {"<p>", "[MASK]"}, "the map is not read"
    assert found["pad_token"].lstrip and found["pad_token"].special and not found["mask_token"].lstrip


@pytest.mark.parametrize("value", [5, ["[PAD]"], {"text": "[PAD]"}, {"content": "[PAD]", "lstrip": "yes"}])
def test_special_token_of_invalid_type_is_rejected(tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        settings(tmp_path, pad_token=value).tokens({"[PAD]"})


@pytest.mark.parametrize("value", [[1], {"x": "<a>"}, {"5": None}, {"9" * 30: "<a>"}])
def test_added_tokens_of_invalid_type_are_rejected(tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        _ = settings(tmp_path, added_tokens_decoder=value).added


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "config.json"])
@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"], ids=range(5))
def test_invalid_json_is_reported(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=name):
        TokenizerConfig.open(tmp_path)


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read_object(path) == {}
    path.write_bytes(b'\xef\xbb\xbf{"a":\r\n1}')
    assert read_object(path) == {"a": 1}
    path.write_bytes(b"one\ntwo \xc3")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        read_text(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_text(tmp_path)
