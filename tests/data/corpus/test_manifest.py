"""The manifest: comparison of corpora."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regard.data.corpus.folder import CorpusManifest, SourceFile, corpus_folder, source_of, tokenizer_digest
from regard.files.storage import file_identity
from regard.text import Tokenizer

SOURCES = tuple(SourceFile(f"{name}.txt", 10, name * 8) for name in "abcdef")
BASE = CorpusManifest(SOURCES, "t", 100, {"key": "text"}, {"vocab.txt": (10, "v")})


def test_a_manifest_round_trip_on_disk(tmp_path: Path) -> None:
    folder = corpus_folder(tmp_path)
    folder.begin(BASE.identity)
    record = folder.read()
    assert record is not None and CorpusManifest.of(record, tmp_path) == BASE


def test_differences_are_described() -> None:
    assert BASE.differences(BASE) == []
    moved = replace(BASE, sources=tuple(replace(source, name="x/" + source.name) for source in SOURCES))
    assert BASE.differences(moved) == []
    assert BASE.differences(replace(BASE, sources=SOURCES[:2])) == ["it had 6 source files and now has 2"]
    other = (replace(SOURCES[0], sha256="z"), *SOURCES[1:])
    assert BASE.differences(replace(BASE, sources=other)) == ["the source a.txt changed"]
    turned = BASE.differences(replace(BASE, sources=SOURCES[::-1]))
    assert turned == ["f.txt differs from a.txt", *turned[1:3], "and 3 more sources"] and len(turned) == 4
    assert BASE.differences(replace(BASE, tokenizer="u", settings={"key": "body"})) == [
        "the tokenizer changed",
        "key was 'text' and is 'body'",
    ]


def test_digests_of_sources_and_tokenizers(tmp_path: Path, wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert source_of(path, file_identity(path)) == SourceFile(path.as_posix(), 3, digest)
    wordpiece.save(tmp_path / "saved")
    assert tokenizer_digest(Tokenizer.open(tmp_path / "saved")) == tokenizer_digest(wordpiece) != tokenizer_digest(bpe)
