"""Untrusted tokenizer.json files: invalid settings are reported, and excessive memory or time is rejected."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard.known import builtin_folder
from regard.text import Tokenizer, guard

Make = Callable[..., Path]

PADDING = {
    "strategy": {"Fixed": 128},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
}
TRUNCATION = {"direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((builtin_folder("regard-bert") / "tokenizer.json").read_bytes())
    return found


@pytest.fixture
def make(document: dict[str, Any], tmp_path: Path) -> Make:
    """Creates a folder with a copy of a valid tokenizer.json with some sections replaced."""

    def make(**sections: object) -> Path:
        (tmp_path / "tokenizer.json").write_text(json.dumps(document | sections), encoding="utf-8")
        return tmp_path

    return make


def replaced(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(regex: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = {"type": "Lowercase"}
    for _ in range(depth):
        found = {"type": "Sequence", "normalizers": [found]}
    return found


CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def template(single: list[object], ids: list[int]) -> dict[str, object]:
    tokens = {"[CLS]": {"id": "[CLS]", "ids": ids, "tokens": ["[CLS]"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, TEXT], "special_tokens": tokens}


HOSTILE: dict[str, tuple[str, object, str]] = {
    "fixed": ("padding", PADDING | {"strategy": {"Fixed": 10**9}}, "Fixed"),
    "multiple": ("padding", PADDING | {"pad_to_multiple_of": 10**9}, "pad_to_multiple_of"),
    "negative": ("padding", PADDING | {"pad_to_multiple_of": 0}, "pad_to_multiple_of"),
    "padding": ("padding", 7, "padding"),
    "stride": ("truncation", TRUNCATION | {"stride": 500}, "stride"),
    "length": ("truncation", TRUNCATION | {"max_length": -1}, "max_length"),
    "chain": (
        "normalizer",
        {"type": "Sequence", "normalizers": [replaced({"String": "a"}, "aa")] * 40},
        "normalizer.*Replace",
    ),
    "legacy": ("normalizer", {"normalizers": [{"pattern": {"String": "a"}, "content": "aa"}] * 40}, "normalizer"),
    "regex chain": (
        "normalizer",
        {"type": "Sequence", "normalizers": [replaced({"Regex": "a"}, "aa")] * 40},
        "normalizer.*Replace",
    ),
    "content": ("normalizer", replaced({"String": "a"}, "b" * 10**6), "normalizer.*content"),
    "prepend": ("normalizer", {"type": "Prepend", "prepend": "b" * 10**6}, "normalizer.*prepend"),
    "nested quantifiers": ("pre_tokenizer", split("(a+)+$"), "pre_tokenizer.*Regex"),
    "nested in a group": ("pre_tokenizer", split(r"x(?:b|((?:\p{L}*)))*!"), "pre_tokenizer.*Regex"),
    "repetition": ("pre_tokenizer", split("a{1000000}"), "pre_tokenizer.*Regex"),
    "product": ("pre_tokenizer", split("((a{900}){900}){900}"), "pre_tokenizer.*Regex"),
    "long regex": ("pre_tokenizer", split("ab|" * 10**5), "pre_tokenizer.*Regex"),
    "strip": ("decoder", {"type": "Strip", "content": " ", "start": 10**12, "stop": 0}, "decoder.*start"),
    "template": ("post_processor", template([CLS] * 5000 + [TEXT], [1]), "post_processor"),
    "many ids": ("post_processor", template([CLS, TEXT], [1] * 10**5), "post_processor"),
    "depth": ("normalizer", nested(100), "normalizer.*nested"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_invalid_settings_are_reported(kind: str, make: Make) -> None:
    section, value, named = HOSTILE[kind]
    with pytest.raises(InputError, match=rf"(?s)tokenizer\.json.*{named}"):
        Tokenizer.open(make(**{section: value}))


def test_duplicate_keys_are_rejected(make: Make) -> None:
    path = make() / "tokenizer.json"
    text = json.dumps(PADDING | {"strategy": {"Fixed": 10**9}})
    path.write_text('{"padding": ' + text + "," + path.read_text("utf-8")[1:], encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.json.*'padding'.*twice"):
        Tokenizer.open(path.parent)


def test_valid_padding_and_truncation_are_ignored(make: Make) -> None:
    plain, text = Tokenizer.open(builtin_folder("regard-bert")), "a film " * 100
    for padding, truncation in ((PADDING, TRUNCATION), (PADDING | {"pad_to_multiple_of": 8}, None)):
        found = Tokenizer.open(make(padding=padding, truncation=truncation))
        assert found.encode(text) == plain.encode(text)
        assert found.encode("one") == plain.encode("one")


@pytest.mark.parametrize(
    "regex",
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}|[\]()+*]+|\(\+\)+",
        r"(?:\p{L}\p{M}*)+|(?>a+)+|(?:b++)+| {2,}",
    ],
)
def test_real_regexes_are_accepted(regex: str, make: Make) -> None:
    assert Tokenizer.open(make(pre_tokenizer=split(regex))).size == Tokenizer.open(builtin_folder("regard-bert")).size


def test_excessive_memory_or_time_is_rejected(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # A replacement that doubles one letter, forty times: each setting alone is valid.
    monkeypatch.setattr(guard, "MEMORY", 200 << 20)
    monkeypatch.setattr(guard, "MEMORY_RATIO", 0)
    steps = [replaced({"Regex": "(?=\u03a9)"}, "\u03a9")] * 40
    folder = make(normalizer={"type": "Sequence", "normalizers": steps})
    with pytest.raises(InputError, match=r"tokenizer\.json.*memory"):
        Tokenizer.open(folder)
    text = (folder / "tokenizer.json").read_text("utf-8")
    monkeypatch.setattr(guard, "WAIT", 0.001)
    with pytest.raises(InputError, match=r"tokenizer\.json.*seconds"):
        guard.check_tokenizer_file(text + "  ", folder / "tokenizer.json")


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of processor time")
def test_cpu_time_is_limited(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SECONDS", 0)
    folder = make(pre_tokenizer=split(r"a*a*a*a*\p{Nd}"))  # many ways to match 2,000 letters, all in vain
    with pytest.raises(InputError, match=r"tokenizer\.json.*seconds"):
        guard.check_tokenizer_file((folder / "tokenizer.json").read_text("utf-8"), folder / "tokenizer.json")


def test_invalid_files_have_their_usual_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.json cannot be used; fetch or save it again"):
        Tokenizer.open(tmp_path)


def test_check_runs_once_and_only_for_untrusted_files(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[object] = []
    real = subprocess.run

    def counted(*arguments: Any, **options: Any) -> Any:
        started.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    ours = Tokenizer.open(builtin_folder("regard-gpt"))
    ours.save(tmp_path / "saved")
    again = Tokenizer.open(tmp_path / "saved")
    assert again.encode("one two").ids == ours.encode("one two").ids
    assert not started
    folder = make(version="1.0", truncation=TRUNCATION | {"max_length": 77})
    for _ in range(3):
        Tokenizer.open(folder)
    assert len(started) == 1
