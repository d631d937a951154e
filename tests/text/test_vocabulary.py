"""Vocabulary files: the tokenizer of each kind of folder, and errors for invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from regard.errors import InputError
from regard.text import Tokenizer

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "Hello", "cafe", "café", "漢", "字", "漢字"]
BYTES = {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "<|endoftext|>": 5}
MERGES = "#version: 0.2\na b\nĠ a\n"
ROBERTA = BYTES | {"<s>": 6, "</s>": 7, "<mask>": 8}


def folder(path: Path, **files: Any) -> Path:
    """Write files: lists as lines, dicts as JSON, str and bytes unchanged; `vocab_txt` becomes vocab.txt."""
    path.mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        stem, _, suffix = key.rpartition("_")
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content)
        elif isinstance(content, dict):
            content = json.dumps(content)
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        (path / f"{stem}.{suffix}").write_bytes(data)
    return path


def error_message(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        Tokenizer.open(path)
    return str(caught.value)


def test_bert_lowercases_and_strips_accents_by_default(tmp_path: Path) -> None:
    made = Tokenizer.open(folder(tmp_path, vocab_txt=BERT))
    assert made.encode("Hello Café 漢字", add_special_tokens=False).tokens == ["hello", "cafe", "漢", "字"]


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({"do_lower_case": False}, ["Hello", "café", "漢", "字"]),
        ({"strip_accents": False}, ["hello", "café", "漢", "字"]),
        ({"do_lower_case": False, "strip_accents": True}, ["Hello", "cafe", "漢", "字"]),
        ({"tokenize_chinese_chars": False}, ["hello", "cafe", "漢字"]),
        ({"do_lower_case": None, "strip_accents": None}, ["hello", "cafe", "漢", "字"]),
    ],
)
def test_bert_options(tmp_path: Path, options: dict[str, Any], tokens: list[str]) -> None:
    made = Tokenizer.open(folder(tmp_path / "a", vocab_txt=BERT, tokenizer_config_json=options))
    assert made.encode("Hello café 漢字", add_special_tokens=False).tokens == tokens
    made.save(tmp_path / "b")
    (tmp_path / "b" / "tokenizer.json").unlink()
    assert Tokenizer.open(tmp_path / "b").encode("Hello café 漢字", add_special_tokens=False).tokens == tokens


@pytest.mark.parametrize("stated", ["BertTokenizer", "DistilBertTokenizerFast", "MPNetTokenizer", None])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("options", [{}, {"do_lower_case": False, "tokenize_chinese_chars": False}])
def test_bert_options_count_beside_tokenizer_json(
    tmp_path: Path, stated: str | None, lowercase: bool, options: dict[str, Any]
) -> None:
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    Tokenizer.open(folder(tmp_path / "a", vocab_txt=BERT)).save(tmp_path / "b")
    path = tmp_path / "b" / "tokenizer.json"
    document = json.loads(path.read_text())
    document["normalizer"]["lowercase"] = lowercase
    path.write_text(json.dumps(document))
    settings = {**names, **options, **({"tokenizer_class": stated} if stated else {})}
    (path.parent / "tokenizer_config.json").write_text(json.dumps(settings))
    (path.parent / "config.json").write_text('{"model_type": "bert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent)
    text = "Hello café 漢字"
    assert Tokenizer.open(path.parent).encode(text).ids == theirs(text)["input_ids"]
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # which takes tokenizer.json as it is
    (path.parent / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent)
    assert Tokenizer.open(path.parent).encode(text).ids == theirs(text)["input_ids"]


def test_bert_with_custom_special_tokens(tmp_path: Path) -> None:
    words = ["<p>", "<u>", "<c>", "<e>", "hello"]
    names = {"pad_token": "<p>", "unk_token": {"content": "<u>"}, "cls_token": "<c>", "sep_token": "<e>"}
    made = Tokenizer.open(folder(tmp_path, vocab_txt=words, special_tokens_map_json=names))
    assert made.encode("hello there").ids == [2, 4, 1, 3]
    assert (made.pad_token_id, made.unk_token_id, made.cls_token_id, made.sep_token_id, made.mask_token_id) == (
        0,
        1,
        2,
        3,
        None,
    )


def test_tokenizer_json_is_preferred(tmp_path: Path) -> None:
    Tokenizer.open(folder(tmp_path, vocab_txt=BERT)).save(tmp_path)
    (tmp_path / "vocab.txt").write_text("broken\nbroken\n")
    assert Tokenizer.open(tmp_path).encode("hello").ids == [2, 5, 3]


def test_line_endings_and_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    made = Tokenizer.open(folder(tmp_path, vocab_txt=b"\xef\xbb\xbf" + "\r\n".join([*BERT, "a\u2028b"]).encode()))
    assert (made.pad_token_id, made.id("hello"), made.id("a\u2028b"), made.size) == (0, 5, 12, 13)


def test_gpt2_style(tmp_path: Path) -> None:
    made = Tokenizer.open(folder(tmp_path, vocab_json=BYTES, merges_txt=MERGES))
    encoding = made.encode("ab a<|endoftext|>")
    assert (encoding.ids, encoding.offsets) == ([2, 4, 5], [(0, 2), (2, 4), (4, 17)])
    assert made.encode("a", "b").ids == [0, 1]
    assert (made.bos_token_id, made.eos_token_id, made.unk_token_id, made.pad_token_id) == (5, 5, 5, None)


@pytest.mark.parametrize("bos", [True, False])
def test_gpt2_with_a_beginning_of_text_token(tmp_path: Path, bos: bool) -> None:
    options = {"add_bos_token": bos, "add_prefix_space": True}
    made = Tokenizer.open(folder(tmp_path, vocab_json=BYTES, merges_txt=MERGES, tokenizer_config_json=options))
    assert made.encode("a").ids == [5] * bos + [4]
    assert made.encode("a", "a").ids == ([5] * bos + [4]) * 2


@pytest.mark.parametrize(
    "config_files",
    [
        {"config_json": {"model_type": "roberta"}},
        {"tokenizer_config_json": {"tokenizer_class": "RobertaTokenizer"}},
        {"tokenizer_config_json": {"tokenizer_class": "RobertaTokenizerFast"}},
    ],
)
def test_roberta_style(tmp_path: Path, config_files: dict[str, Any]) -> None:
    made = Tokenizer.open(folder(tmp_path, vocab_json=ROBERTA, merges_txt=MERGES, **config_files))
    encoding = made.encode("ab a <mask>", "a")
    assert encoding.ids == [6, 2, 4, 8, 7, 7, 0, 7]
    assert encoding.offsets == [(0, 0), (0, 2), (3, 4), (5, 11), (0, 0), (0, 0), (0, 1), (0, 0)]
    assert (made.cls_token_id, made.sep_token_id, made.mask_token_id, made.bos_token_id, made.eos_token_id) == (
        6,
        7,
        8,
        6,
        7,
    )


def test_added_tokens(tmp_path: Path) -> None:
    files = {"vocab_json": BYTES, "merges_txt": MERGES}
    decoder = {"6": {"content": "<pad>", "special": True}, "7": {"content": "<x>", "lstrip": True}}
    listed = {"added_tokens_decoder": decoder, "pad_token": "<pad>"}
    made = Tokenizer.open(folder(tmp_path, **files, added_tokens_json={"<old>": 6}, tokenizer_config_json=listed))
    assert made.encode("a <x><pad>").ids == [0, 7, 6]
    assert made.pad_token_id == 6
    (tmp_path / "tokenizer_config.json").unlink()
    assert "'<pad>' should have the id 9" in error_message(folder(tmp_path, added_tokens_json={"<pad>": 9}))
    assert "expected an added token with its id" in error_message(folder(tmp_path, added_tokens_json={"<pad>": "six"}))


def test_exists(tmp_path: Path) -> None:
    assert not Tokenizer.exists(tmp_path / "absent")
    assert not Tokenizer.exists(folder(tmp_path, config_json={"model_type": "vit"}))
    assert Tokenizer.exists(folder(tmp_path / "a", vocab_txt=BERT))
    assert Tokenizer.exists(folder(tmp_path / "b", vocab_json=BYTES, merges_txt=MERGES))
    assert Tokenizer.exists(folder(tmp_path / "c", spiece_model=b"\0"))


def test_missing_files_are_reported(tmp_path: Path) -> None:
    assert "is not a folder" in error_message(tmp_path / "absent")
    assert "has no tokenizer; expected tokenizer.json" in error_message(tmp_path)
    message = error_message(folder(tmp_path, spiece_model=b"\0"))
    assert "spiece.model is not a SentencePiece model" in message and "fetch it again" in message


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"vocab_txt": ""}, "vocab.txt is empty"),
        ({"vocab_txt": "\n"}, "vocab.txt is empty"),
        ({"vocab_txt": [*BERT, "hello"]}, "vocab.txt, line 13: 'hello' is already on line 6"),
        ({"vocab_txt": b"[PAD]\n[UNK]\ncaf\xe9\n"}, "vocab.txt, line 3: not UTF-8"),
        ({"vocab_txt": ["[PAD]", "[CLS]", "[SEP]"]}, "vocab.txt has no line for the unk_token '[UNK]'"),
        ({"vocab_txt": BERT, "tokenizer_config_json": {"sep_token": "<e>"}}, "no line for the sep_token '<e>'"),
        ({"vocab_json": BYTES}, "merges.txt is missing"),
        ({"vocab_json": "{", "merges_txt": MERGES}, "vocab.json:1:2: not valid JSON"),
        ({"vocab_json": "[1]", "merges_txt": MERGES}, "vocab.json:1:1: expected a JSON object"),
        ({"vocab_json": {}, "merges_txt": MERGES}, "vocab.json should give every token a unique id"),
        ({"vocab_json": {"a": 0, "b": 0}, "merges_txt": MERGES}, "repeats an id"),
        ({"vocab_json": {"a": "0"}, "merges_txt": MERGES}, "vocab.json: the id of 'a' should be a whole number"),
        ({"vocab_json": {"a": -1}, "merges_txt": MERGES}, "vocab.json: the id of 'a' should be a whole number"),
        ({"vocab_json": BYTES, "merges_txt": "a b\na\n"}, "merges.txt, line 2: expected two pieces"),
        ({"vocab_json": BYTES, "merges_txt": "a b\nb c\n"}, "do not belong together"),
        ({"vocab_json": BYTES, "merges_txt": b"a \xff\n"}, "merges.txt, line 1: not UTF-8"),
        ({"vocab_json": BYTES, "merges_txt": MERGES, "config_json": {"model_type": "roberta"}}, "lacks '<s>'"),
        ({"tokenizer_json": "{"}, "tokenizer.json cannot be used"),
        ({"tokenizer_json": "[]"}, "tokenizer.json cannot be used"),
        ({"tokenizer_json": {}}, "tokenizer.json cannot be used"),
        ({"tokenizer_json": "[" * 100_000}, "tokenizer.json cannot be used"),
        ({"tokenizer_json": b"\xff"}, "tokenizer.json, line 1: not UTF-8"),
    ],
)
def test_invalid_files_are_reported(tmp_path: Path, files: dict[str, Any], expected: str) -> None:
    message = error_message(folder(tmp_path, **files))
    assert expected in message and str(tmp_path) in message


TEMPLATE = {"type": "TemplateProcessing", "single": [], "special_tokens": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"post_processor": TEMPLATE | {"pair": [{"SpecialToken": {"id": "x", "type_id": 0}}]}},
        {"model": None},
    ],
)
def test_files_that_make_the_library_panic_are_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    Tokenizer.open(folder(tmp_path, vocab_txt=BERT)).save(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert "tokenizer.json cannot be used" in error_message(folder(tmp_path, tokenizer_json=state | change))
