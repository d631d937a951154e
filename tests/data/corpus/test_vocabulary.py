"""Training tokenizers: structure, determinism, limits, and equal ids in transformers."""

from __future__ import annotations

import hashlib
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.data.corpus import train_tokenizer
from regard.data.corpus.vocabulary import TokenizerType
from regard.errors import InputError
from regard.text import Tokenizer

LINES = ["The quick brown fox jumps over the lazy dog, naïvely.", "¡Olé! £5 in 1938; the dog's déjà vu. 漢字"] * 3
PROBE = "The Dog's £19 DÉJÀ vu!? 漢字 foxes"


@pytest.fixture(scope="module")
def real(shared_data: Callable[[str], Path]) -> list[str]:
    with lzma.open(shared_data("corpus/heldout.txt.xz"), "rt", encoding="utf-8") as file:
        return [line for _, line in zip(range(400), file, strict=False)]


def test_wordpiece_has_the_structure_of_bert() -> None:
    tokenizer = train_tokenizer(LINES, size=110, minimum=1)
    assert tokenizer.size == len(tokenizer.vocabulary) == 110
    assert list(tokenizer.vocabulary)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (
        tokenizer.pad_token_id,
        tokenizer.unk_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
    ) == (0, 1, 2, 3, 4)
    encoding = tokenizer.encode("The Fox", "the dog")
    assert encoding.tokens == ["[CLS]", "the", "fox", "[SEP]", "the", "dog", "[SEP]"]
    assert tokenizer.decode(tokenizer.encode("Naïvely, the fox").ids) == "naively, the fox"
    assert "##," not in tokenizer.vocabulary and "##字" not in tokenizer.vocabulary
    assert tokenizer.encode("☃", add_special_tokens=False).ids == [1]


def test_alphabet_equals_that_of_the_library() -> None:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    theirs = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    lines = [*LINES, "a\tb\u00a0c\u200dd e\u0301 x+y ©z «q» ǅungla ﬁne I\u0307"]
    theirs.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=1, show_progress=False))
    letters = set(theirs.get_vocab())
    ours = train_tokenizer(lines, size=5 + len(letters), minimum=1)
    assert set(list(ours.vocabulary)[5:]) == letters


def test_cased_vocabulary() -> None:
    tokenizer = train_tokenizer(LINES, size=119, lowercase=False, minimum=1)
    assert tokenizer.encode("The naïvely", add_special_tokens=False).tokens[0].startswith("T")
    assert "ï" in "".join(tokenizer.encode("naïvely", add_special_tokens=False).tokens)


def test_bpe_encodes_any_text() -> None:
    tokenizer = train_tokenizer(LINES, kind="bpe", size=300)
    assert tokenizer.size == 300
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == tokenizer.id("<|endoftext|>") == 0
    for text in (PROBE, " \n\t☃ \x00", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert (
        train_tokenizer(LINES, kind="bpe", size=300, lowercase=True).decode(
            train_tokenizer(LINES, kind="bpe", size=300, lowercase=True).encode("The Dog").ids
        )
        == "the dog"
    )


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 1500), ("bpe", 1500)])
def test_the_same_bytes_in_every_process(kind: TokenizerType, size: int, real: list[str], tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(real), encoding="utf-8")
    program = (
        "import sys, hashlib; from regard.data.corpus import train_tokenizer\n"
        "lines = open(sys.argv[1], encoding='utf-8', newline='\\n').readlines()\n"
        "made = train_tokenizer(iter(lines), kind=sys.argv[2], size=int(sys.argv[3]), alphabet=70)\n"
        "print(hashlib.sha256(made.files()['tokenizer.json']).hexdigest())\n"
    )
    ours = train_tokenizer(real, kind=kind, size=size, alphabet=70).files()["tokenizer.json"]
    found = {hashlib.sha256(ours).hexdigest()}
    for _ in range(2):
        call = [sys.executable, "-c", program, str(path), kind, str(size)]
        found.add(subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip())
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_transformers_has_the_same_ids(kind: TokenizerType, real: list[str], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer(real, kind=kind, size=1000, max_length=64)
    tokenizer.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in [PROBE, *real[:20]]:
        assert theirs(text)["input_ids"][:64] == tokenizer.encode(text).ids[:64]
        assert Tokenizer.open(tmp_path).encode(text).ids == tokenizer.encode(text).ids
    assert theirs.mask_token_id == tokenizer.mask_token_id and theirs.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_size_beyond_the_available_tokens(kind: TokenizerType) -> None:
    with pytest.raises(InputError, match=r"5,000 entries was requested, but this text supports (\d+)") as caught:
        train_tokenizer(LINES, kind=kind, size=5000)
    supported = int(str(caught.value).split("supports ")[1].split(" ")[0])
    assert train_tokenizer(LINES, kind=kind, size=supported).size == supported


def test_size_below_the_alphabet() -> None:
    with pytest.raises(InputError, match=r"characters of this text alone are \d+"):
        train_tokenizer(LINES, size=20)
    with pytest.raises(InputError, match="at least 257"):
        train_tokenizer(LINES, kind="bpe", size=256)
    assert train_tokenizer(LINES, size=60, alphabet=20).size == 60


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(InputError, match="empty"):
        train_tokenizer([" ", ""], size=100)
    with pytest.raises(InputError, match="one str"):
        train_tokenizer("text", size=100)
    with pytest.raises(InputError, match="did you mean 'wordpiece'"):
        train_tokenizer(LINES, kind="wordpieces", size=100)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got int at position 1"):
        train_tokenizer(["a", 1], size=100)  # type: ignore[list-item]
