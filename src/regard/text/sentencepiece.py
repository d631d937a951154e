"""Reads SentencePiece models (`.spm`, `.model`) without the sentencepiece package and converts them to tokenizer.json.

A file is a protobuf message. The reader here knows the few fields that tokenization needs, skips all others, checks
every length, and refuses what it cannot represent. The conversion is a document for the `tokenizers` library, which is
tested like any other untrusted tokenizer.json before it is used.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.files.file_input import read_file

LIMIT = 64 << 20  # bytes of a file; the largest published ones have about 6 MB
MAX_PIECES = 2_000_000
MAX_PIECE = 512  # characters
SPACE = "\u2581"  # stands for a space in pieces
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
# The first tokens of fairseq's vocabularies, and the number of the model's pieces that they replace.
FAIRSEQ = (("<s>", "<pad>", "</s>", "<unk>"), 3)
CAMEMBERT = (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1)
CODES = (  # of mBART's languages, in the order of their ids; the first 25 are those of its first version
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
LANGUAGES = tuple(CODES.split())


@dataclass(frozen=True)
class VocabularyPiece:
    text: str
    score: float = 0.0
    type: int = NORMAL


@dataclass(frozen=True)
class SentencePieceModel:
    """The contents of a file. `charsmap` is the compiled table that normalizes characters."""

    pieces: Sequence[VocabularyPiece] = ()
    model_type: int = UNIGRAM
    byte_fallback: bool = False
    whitespace_as_suffix: bool = False
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True

    def tokenizer_document(self) -> dict[str, Any]:
        """The tokenizer.json of the model without special tokens: whether a piece may be used in a text is its type."""
        unknown = next((number for number, piece in enumerate(self.pieces) if piece.type == UNKNOWN), None)
        dummy, texts = self.add_dummy_prefix, [piece.text for piece in self.pieces]
        words = all(SPACE not in piece.text[1:] for piece in self.pieces if piece.type in (NORMAL, USER_DEFINED))
        if self.model_type == BPE:
            model: dict[str, Any] = {
                "type": "BPE",
                "unk_token": None if unknown is None else texts[unknown],
                "fuse_unk": True,
                "byte_fallback": self.byte_fallback,
                "vocab": {text: number for number, text in enumerate(texts)},
                "merges": merges_of_scores(
                    {piece.text: number for number, piece in enumerate(self.pieces) if piece.type == NORMAL},
                    [piece.score for piece in self.pieces],
                ),
            }
        else:
            model = {"type": "Unigram", "unk_id": unknown, "byte_fallback": self.byte_fallback}
            model["vocab"] = list(zip(texts, self._scores(), strict=True))
        decoder: dict[str, Any] = _metaspace("always" if dummy else "never")
        if self.byte_fallback:
            steps: list[dict[str, Any]] = [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
            strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if dummy else []
            decoder = {"type": "Sequence", "decoders": steps + strip}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": list(self._normalizers())},
            # Pieces do not extend over words in most models, and words are segmented faster than texts.
            "pre_tokenizer": _metaspace("never") if words else None,
            "post_processor": None,
            "decoder": decoder,
            "model": model,
        }

    def _normalizers(self) -> Iterator[dict[str, Any]]:
        if self.charsmap:
            yield {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(self.charsmap).decode()}
        if self.remove_extra_whitespaces:
            yield _replace({"Regex": "\\A +"}, "")
            yield _replace({"Regex": f"[ {SPACE}]+\\z"}, "")
            yield _replace({"Regex": " {2,}"}, " ")
        if self.add_dummy_prefix:
            yield {"type": "Prepend", "prepend": SPACE}
        yield _replace(" ", SPACE)

    def _scores(self) -> list[float]:
        """The scores; as in SentencePiece, a user-defined piece is always preferred to others for the same text."""
        highest = max((piece.score for piece in self.pieces if piece.type == NORMAL), default=0.0)
        return [len(piece.text) * highest - 0.1 if piece.type == USER_DEFINED else piece.score for piece in self.pieces]


def fairseq_model(model: SentencePieceModel, kind: str, languages: int = 0) -> SentencePieceModel:
    """The model with the ids of fairseq: its own special tokens first, the codes of `languages` and the mask last."""
    first, replaced = CAMEMBERT if kind == "camembert" else FAIRSEQ
    begin = [VocabularyPiece(text, -100.0 if text == "<unk>NOTUSED" else 0.0, CONTROL) for text in first]
    begin[3] = replace(begin[3], type=UNKNOWN)
    end = [VocabularyPiece(text, 0.0, CONTROL) for text in (*LANGUAGES[:languages], "<mask>")]
    return replace(model, pieces=_unique([*begin, *model.pieces[replaced:], *end], kind))


def with_sentinels(model: SentencePieceModel, count: object) -> SentencePieceModel:
    """The model with T5's sentinels at the end, which stand for dropped spans; the last id is the first sentinel."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 10_000:
        raise InputError(f"extra_ids should be a whole number from 0 to 10,000, not {count!r}")
    sentinels = [VocabularyPiece(f"<extra_id_{number}>", 0.0, CONTROL) for number in reversed(range(count))]
    return replace(model, pieces=_unique([*model.pieces, *sentinels], "T5"))


def albert_steps(*, keep_accents: bool, lowercase: bool) -> list[dict[str, Any]]:
    """What ALBERT changes in a text before the model's own normalization."""
    steps = [_replace("``", '"'), _replace("''", '"')]
    steps += [] if keep_accents else [{"type": "NFKD"}, {"type": "StripAccents"}]
    return [*steps, {"type": "Lowercase"}] if lowercase else steps


def _unique(pieces: list[VocabularyPiece], kind: str) -> list[VocabularyPiece]:
    seen: set[str] = set()
    for piece in pieces:
        if piece.text in seen:
            raise InputError(
                f"the piece {piece.text!r} occurs twice in the vocabulary of a {kind}; its file begins with the pieces "
                "<unk>, <s> and </s>: fetch the file that belongs to the model"
            )
        seen.add(piece.text)
    return pieces


def merges_of_scores(vocabulary: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merges of a BPE vocabulary that stores scores only: the best token first, in all its splits."""
    merges = []
    for token, number in vocabulary.items():
        for middle in range(1, len(token)):
            left, right = token[:middle], token[middle:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[number], vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a file; InputError if it is not a SentencePiece model, or one that cannot be represented."""
    try:
        data = read_file(path, limit=LIMIT)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        model = _parse(memoryview(data))
    except ValueError as error:
        raise InputError(f"{path} is not a SentencePiece model: {error}; fetch it again") from None
    if model.model_type not in (UNIGRAM, BPE):
        raise InputError(f"{path}: its model type is {model.model_type}; Regard reads Unigram (1) and BPE (2)")
    if model.whitespace_as_suffix or not model.escape_whitespaces:
        raise InputError(f"{path}: treat_whitespace_as_suffix and unescaped spaces are not supported")
    if any(piece.type == UNUSED for piece in model.pieces):
        raise InputError(f"{path}: some pieces are marked as unused, which is not supported; use the original file")
    return model


# Field numbers of TrainerSpec and NormalizerSpec: our name and the type.
TRAINER = {3: ("model_type", int), 24: ("whitespace_as_suffix", bool), 35: ("byte_fallback", bool)}
NORMALIZER = {
    2: ("charsmap", bytes),
    3: ("add_dummy_prefix", bool),
    4: ("remove_extra_whitespaces", bool),
    5: ("escape_whitespaces", bool),
}


def _parse(data: memoryview) -> SentencePieceModel:
    pieces: list[VocabularyPiece] = []
    values: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in (1, 2, 3):
            continue
        if not isinstance(value, memoryview):
            raise ValueError(f"field {number} should be a message")
        if number == 1:
            pieces.append(_piece(value))
            if len(pieces) > MAX_PIECES:
                raise ValueError(f"it has more than {MAX_PIECES:,} pieces")
        else:
            for key, entry in _fields(value):
                name, kind = (TRAINER if number == 2 else NORMALIZER).get(key, ("", bytes))
                if name and (isinstance(entry, float) or (kind is bytes) != isinstance(entry, memoryview)):
                    raise ValueError(f"{name} has another type")
                if name:
                    values[name] = kind(entry)
    if not pieces:
        raise ValueError("it has no pieces")
    texts = {piece.text for piece in pieces}
    if len(texts) < len(pieces):
        raise ValueError("it has a piece twice")
    return SentencePieceModel(pieces, **values)


def _piece(data: memoryview) -> VocabularyPiece:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == 1 and isinstance(value, memoryview):
            text = str(value, "utf-8")
        elif number == 2 and isinstance(value, float):
            score = value
        elif number == 3 and isinstance(value, int):
            kind = value
        elif number in (1, 2, 3):
            raise ValueError("a piece has a field of another type")
    if not text or len(text) > MAX_PIECE:
        raise ValueError(f"a piece has {len(text)} characters, expected 1 to {MAX_PIECE}")
    if not NORMAL <= kind <= BYTE or not math.isfinite(score):
        raise ValueError(f"the piece {text[:40]!r} has type {kind} and score {score}")
    return VocabularyPiece(text, score, kind)


def _fields(data: memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """Yield the number and value of each field of a protobuf message; ValueError if it is damaged."""
    position, size = 0, len(data)
    while position < size:
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if number < 1:
            raise ValueError("a field has the number 0")
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == 2:
            length, position = _varint(data, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"field {number} has the unknown wire type {wire}")
        if length > size - position:
            raise ValueError(f"field {number} needs {length:,} bytes, and {size - position:,} are left")
        content = data[position : position + length]
        position += length
        yield number, struct.unpack("<f", content)[0] if wire == 5 else content


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("it ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number has more than ten bytes")


def _replace(pattern: str | dict[str, str], content: str) -> dict[str, Any]:
    return {
        "type": "Replace",
        "pattern": {"String": pattern} if isinstance(pattern, str) else pattern,
        "content": content,
    }


def _metaspace(prepend_scheme: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": prepend_scheme, "split": True}
