"""The tokenizers of a Marian folder: SentencePiece models segment the texts of both languages, vocab.json has the ids.

A piece that vocab.json does not contain is unknown. The code of a target language such as ">>fra<<" is one token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import AddedToken, decoders, models, processors

from regard.errors import InputError
from regard.files.file_input import read_file
from regard.text.sentencepiece import NORMAL, SPACE, USER_DEFINED, read_sentencepiece
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_folder import LIMIT, MARIAN, TokenizerConfig, load_document, read_vocabulary_ids, refusing

Side = Literal["source", "target"]
FILES = ("vocab.json", *MARIAN, "tokenizer_config.json")


class MarianTokenizer(Tokenizer):
    """One side of a folder. `language_codes` are the target languages that a text may begin with."""

    def __init__(
        self,
        pipeline: tokenizers.Tokenizer,
        segmenter: tokenizers.Tokenizer,
        files: Mapping[str, bytes],
        **settings: Any,
    ) -> None:
        super().__init__(pipeline, **settings)
        self._segmenter, self._files = segmenter, dict(files)
        self._ids = pipeline.get_vocab(with_added_tokens=True)

    @classmethod
    def open_side(cls, folder: Path, side: Side, *, rows: int | None = None) -> MarianTokenizer:
        """Read one side of a folder; `rows` as for `Tokenizer.open`."""
        settings = TokenizerConfig.open(folder)
        separate = side == "target" and settings.flag("separate_vocabs") is True
        path = folder / ("target_vocab.json" if separate else "vocab.json")
        if not path.is_file():
            raise InputError(f"{path} is missing; a Marian folder has vocab.json, source.spm and target.spm")
        vocabulary = read_vocabulary_ids(path)
        tokens = settings.tokens(vocabulary)
        for role in ("unk_token", "eos_token", "pad_token"):
            if role not in tokens:
                raise InputError(f"{path} lacks the {role}, which a Marian tokenizer needs")
        special = [tokens[role] for role in ("unk_token", "eos_token", "pad_token")]
        codes = [AddedToken(token, special=True, normalized=False) for token in vocabulary if is_language_code(token)]
        pipeline = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=tokens["unk_token"].content))
        pipeline.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
        pipeline.add_special_tokens([*special, *codes])
        segmenter = _segmenter(folder / f"{side}.spm", [*special, *codes], end=tokens["eos_token"].content)
        files = {name: read_file(folder / name, limit=LIMIT) for name in FILES if (folder / name).is_file()}
        names = {role: tokens[role].content for role in ("unk_token", "eos_token", "pad_token")}
        tokenizer = cls(pipeline, segmenter, files, special_tokens=names, max_length=settings.max_length)
        tokenizer._rows = rows if rows is not None and tokenizer.size > rows else None
        return tokenizer

    @property
    def language_codes(self) -> list[str]:
        """The codes of the target languages of a model with several, as in ">>fra<<"."""
        return [token[2:-2] for token in self.vocabulary if is_language_code(token)]

    def files(self, *, max_length: int | None = None) -> dict[str, bytes]:
        """The files of both sides, as they were read."""
        return dict(self._files)

    @property
    def _word_cache(self) -> None:
        return None

    def _run(self, method: str, inputs: Sequence[object], add_special_tokens: bool) -> list[Any]:
        unknown = self.unk_token_id  # the fast method of the library does not return the pieces
        encoded = self._segmenter.encode_batch(inputs, add_special_tokens=add_special_tokens)
        return [_Renumbered(item, [self._ids.get(token, unknown) for token in item.tokens]) for item in encoded]


class _Renumbered:
    """An encoding of the segmenter with the ids of vocab.json."""

    def __init__(self, encoded: tokenizers.Encoding, ids: list[int | None]) -> None:
        self._encoded, self.ids = encoded, ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoded, name)


def is_language_code(token: str) -> bool:
    return token.startswith(">>") and token.endswith("<<") and len(token) > 4


def _segmenter(path: Path, special: list[AddedToken], *, end: str) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise InputError(f"{path} is missing; a Marian folder has vocab.json, source.spm and target.spm")
    model = read_sentencepiece(path)
    # Control pieces such as <s> are no part of a text: under these names none contains them.
    pieces = [
        piece if piece.type in (NORMAL, USER_DEFINED) else replace(piece, text=f"\ufdd0{number}")
        for number, piece in enumerate(model.pieces)
    ]
    pipeline = load_document(json.dumps(replace(model, pieces=pieces).tokenizer_document()), path)
    with refusing(f"{path} cannot be used"):
        pipeline.add_special_tokens(special)
        number = pipeline.token_to_id(end)
        pipeline.post_processor = processors.TemplateProcessing(
            single=["$A", end], pair=["$A", "$B", end], special_tokens=[(end, number)]
        )
    return pipeline
