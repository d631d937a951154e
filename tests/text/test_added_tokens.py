"""Tokens added to a vocabulary, in each of the files that may list them: the ids are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, normalizers, pre_tokenizers, processors

from regard.errors import InputError
from regard.text import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij"), "<e>", "[X]", "foo"]
TEXTS = ["a b <new> c", "abc [NEW]ab", "A<NEW> b", " foo <new> [MASK] x [X]", "a <e> b", "ab  <new>  cd", "", "ß日"]
FIRST = len(WORDS)


def token(content: str, **flags: bool) -> dict[str, Any]:
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False} | flags


def pipeline(*added: str) -> str:
    made = Pipeline(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(SPECIAL)
    made.add_tokens(list(added))
    return made.to_str()


NEW = {str(FIRST): token("<new>", special=False), str(FIRST + 1): token("[NEW]", special=True, lstrip=True)}
ROLES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES}
CASES: dict[str, dict[str, Any]] = {
    "added_tokens.json": {"added_tokens.json": {"<new>": FIRST, "[NEW]": FIRST + 1}},
    "added and special": {
        "added_tokens.json": {"<new>": FIRST, "[NEW]": FIRST + 1},
        "special_tokens_map.json": {"additional_special_tokens": ["[NEW]"], "mask_token": "[X]"},
    },
    "decoder": {"tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "added_tokens_decoder": NEW}},
    "decoder without flags": {
        "tokenizer_config.json": {
            "tokenizer_class": "BertTokenizer",
            "added_tokens_decoder": {str(FIRST): {"content": "<new>"}},
        }
    },
    "tokenizer.json": {"tokenizer.json": pipeline("<new>"), "tokenizer_config.json": FAST},
    "another flag in the decoder": {
        "tokenizer.json": pipeline("<new>"),
        "tokenizer_config.json": FAST | {"added_tokens_decoder": {str(FIRST): token("<new>", special=False)}},
    },
    "more in the decoder": {
        "tokenizer.json": pipeline(),
        "tokenizer_config.json": FAST | {"added_tokens_decoder": NEW},
        "special_tokens_map.json": {"mask_token": "[X]"},
    },
    "more in added_tokens.json": {
        "tokenizer.json": pipeline(),
        "added_tokens.json": {"<new>": FIRST},
        "tokenizer_config.json": FAST,
    },
    "another mask in the map": {
        "tokenizer.json": pipeline(),
        "special_tokens_map.json": {"mask_token": token("[X]", lstrip=True), "additional_special_tokens": ["<e>"]},
        "tokenizer_config.json": FAST | {"mask_token": "[MASK]"},
    },
    "additional": {"tokenizer_config.json": {"additional_special_tokens": ["<e>", "<new>"]}},
    "extra by name": {
        "tokenizer.json": pipeline(),
        "tokenizer_config.json": FAST | {"extra_special_tokens": {"e_token": "<e>"}, "new_token": "<new>"},
    },
}


def write(folder: Path, files: dict[str, Any]) -> Path:
    defaults = {"config.json": {"model_type": "bert"}, "vocab.txt": "\n".join(WORDS) + "\n"}
    for name, content in {**defaults, **files}.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_transformers(tmp_path: Path, case: str) -> None:
    folder = write(tmp_path, CASES[case])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = Tokenizer.open(folder)
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text).input_ids, text
    assert theirs.mask_token is None or ours.token(ours.mask_token_id or 0) == theirs.mask_token
    again = tmp_path / "saved"
    again.mkdir()
    ours.save(again)
    saved = Tokenizer.open(again)
    assert [saved.encode(text).ids for text in TEXTS] == [ours.encode(text).ids for text in TEXTS]


def test_an_id_that_is_not_the_next_one_is_refused(tmp_path: Path) -> None:
    """transformers would number the token otherwise than the file says."""
    decoder = {str(FIRST + 4): token("<new>")}
    for files in ({}, {"tokenizer.json": pipeline()}):
        write(tmp_path, {**files, "tokenizer_config.json": FAST | {"added_tokens_decoder": decoder}})
        with pytest.raises(InputError, match=f"'<new>' should have the id {FIRST + 4}"):
            Tokenizer.open(tmp_path)


@pytest.mark.parametrize("value", [5, "<e>x" * 9, [5], [{"text": "<e>"}], {"e": 5}])
def test_extra_tokens_of_invalid_type(tmp_path: Path, value: object) -> None:
    write(tmp_path, {"tokenizer.json": pipeline(), "tokenizer_config.json": FAST | {"extra_special_tokens": value}})
    if isinstance(value, str):
        Tokenizer.open(tmp_path)
        return
    with pytest.raises(InputError, match=str(tmp_path)):
        Tokenizer.open(tmp_path)
