"""Reading a corpus: random access, pickling, multiple processes, damaged folders."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data.corpus import Corpus, build_corpus
from regard.data.corpus.folder import tokenizer_files
from regard.errors import InputError
from regard.files import checksums
from regard.files.json_files import with_checksum
from regard.text import Tokenizer


@pytest.fixture
def folder(source: Path, wordpiece: Tokenizer, tmp_path: Path) -> Path:
    build_corpus(source, tmp_path / "corpus", tokenizer=wordpiece, shard_bytes=700)
    return tmp_path / "corpus"


def test_document_numbers_continue_across_shards(folder: Path) -> None:
    corpus = Corpus.open(folder)
    assert len(corpus) == corpus.documents == 40
    parts = [corpus.shard(number) for number in range(corpus.shards)]
    assert sum(len(part.tokens) for part in parts) == corpus.tokens
    sentences = [sentence for number in range(40) for sentence in corpus.document(number)]
    assert len(sentences) == corpus.sentences
    assert np.array_equal(np.concatenate(sentences), np.concatenate([part.tokens for part in parts]))


def test_shards_are_opened_on_first_access(folder: Path) -> None:
    corpus = Corpus.open(folder)
    shutil.rmtree(folder / "shard-000000")
    assert len(corpus.document(len(corpus) - 1)) > 0
    with pytest.raises(InputError, match="shard-000000"):
        corpus.document(0)


def test_arrays_are_read_only(folder: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        Corpus.open(folder).document(0)[0][0] = 1


@pytest.mark.parametrize("number", [-1, 40, 10**12])
def test_invalid_document_number(folder: Path, number: int) -> None:
    with pytest.raises(IndexError, match=r"numbered from 0 to 39"):
        Corpus.open(folder).document(number)


def first_ids(corpus: Corpus) -> list[int]:
    return [int(corpus.document(number)[0][0]) for number in range(0, len(corpus), 7)]


def test_pickles_are_small_and_work_in_other_processes(folder: Path) -> None:
    corpus = Corpus.open(folder)
    expected = first_ids(corpus)
    assert corpus.tokenizer.size == 150
    data = pickle.dumps(corpus)
    assert len(data) < 10_000
    assert first_ids(pickle.loads(data)) == expected
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        assert list(pool.map(first_ids, [corpus] * 4)) == [expected] * 4


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.npy", "documents.npy"])
def test_damaged_files_are_reported(folder: Path, name: str) -> None:
    path = folder / "shard-000001" / name
    good = path.read_bytes()
    path.write_bytes(good[:-2])
    with pytest.raises(InputError, match=rf"shard-000001/{name} is damaged: it has [\d,]+ bytes"):
        Corpus.open(folder)
    path.write_bytes(good[:-2] + bytes([good[-2] ^ 1, good[-1]]))
    with pytest.raises(InputError, match=rf"shard-000001/{name} is damaged: its SHA-256"):
        Corpus.open(folder)
    path.unlink()
    with pytest.raises(InputError, match=rf"shard-000001/{name} cannot be read"):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["sentences.npy", "documents.npy"])
def test_a_file_of_the_right_size_with_invalid_content(folder: Path, name: str) -> None:
    path = folder / "shard-000000" / name
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(InputError, match=rf"{name} is damaged: its SHA-256"):
        Corpus.open(folder)
    corpus = Corpus.open(folder, verify="never")
    with pytest.raises(InputError, match=rf"{name} is damaged"):
        corpus.document(0)


def test_inconsistent_starts_are_reported(folder: Path) -> None:
    path = folder / "shard-000000" / "documents.npy"
    starts = np.load(path)
    starts[-1] += 5
    np.save(path, starts)
    with pytest.raises(InputError, match="shard-000000 is damaged"):
        Corpus.open(folder, verify="never").document(0)


def test_replaced_tokenizer_is_reported(folder: Path, bpe: Tokenizer) -> None:
    bpe.save(folder / "tokenizer")
    with pytest.raises(InputError, match=r"tokenizer/tokenizer\.json is damaged"):
        Corpus.open(folder)
    change_record(folder, identity={"tokenizer_files": tokenizer_files(bpe)})
    with pytest.raises(InputError, match="not the tokenizer of this corpus"):
        Corpus.open(folder)


def change_record(folder: Path, *, checksum: bool = True, **changes: dict[str, Any]) -> None:
    """Change values of the identity and the outcome of a corpus, as nothing but a deliberate change could."""
    path = folder / "regard.json"
    document = json.loads(path.read_text())
    del document["checksum"]
    for name, values in changes.items():
        document[name] |= values
    path.write_text(json.dumps(with_checksum(document) if checksum else document))


def test_a_record_without_its_checksum_is_refused(folder: Path) -> None:
    change_record(folder, checksum=False)
    with pytest.raises(InputError, match=r"regard\.json: not a record of this version"):
        Corpus.open(folder)


def flip(path: Path, position: int) -> None:
    """Flip one bit and preserve size and modification time."""
    state, content = path.stat(), bytearray(path.read_bytes())
    content[position] ^= 1 << position % 7
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_files_are_hashed_once_until_they_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    sha256 = checksums.sha256_of
    monkeypatch.setattr(checksums, "sha256_of", lambda path: hashed.append(path.name) or sha256(path))
    corpus = Corpus.open(folder)
    arrays, others = {"documents.npy", "sentences.npy", "tokens.bin"}, corpus.tokenizer.files().keys()
    assert set(hashed) == {*arrays, *others} and len(hashed) == 3 * corpus.shards + len(others)
    hashed.clear()
    Corpus.open(folder)
    assert hashed == []
    os.utime(folder / "shard-000001" / "tokens.bin", (1, 1))
    Corpus.open(folder)
    assert hashed == ["tokens.bin"]
    flip(folder / "shard-000001" / "tokens.bin", 20)
    Corpus.open(folder)  # size and modification time are unchanged
    with pytest.raises(InputError, match=r"shard-000001/tokens\.bin is damaged: its SHA-256"):
        Corpus.open(folder, verify="always")
    with pytest.raises(InputError, match=r"shard-000001/tokens\.bin is damaged: its SHA-256"):
        Corpus.open(folder)  # the new result is cached too


@pytest.mark.parametrize("cache", ["a file", "{", "[]", '{"shard-000001/tokens.bin": 3}'])
def test_unusable_cache_is_ignored(folder: Path, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    if cache == "a file":
        (tmp_path / "cache").write_text("")
    Corpus.open(folder)
    if cache != "a file":
        [path] = checksums.cache_folder().glob("verified/*.json")
        path.write_text(cache)
    Corpus.open(folder)
    (folder / "shard-000001" / "tokens.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"shard-000001/tokens\.bin is damaged"):
        Corpus.open(folder)


def test_every_changed_bit_of_the_manifest_is_detected(folder: Path) -> None:
    path = folder / "regard.json"
    good = path.read_bytes()
    before = Corpus.open(folder).manifest
    chance = random.Random(0)
    for position in [*range(0, len(good), 97), *(good.index(word) for word in (b"checksum", b"sha256:", b'"regard"'))]:
        flip(path, position)
        try:
            assert Corpus.open(folder).manifest == before, position  # only white space changed
        except InputError as error:
            assert str(path) in str(error)
        path.write_bytes(good[: chance.randrange(len(good) - 1)])
        with pytest.raises(InputError, match=r"regard\.json"):
            Corpus.open(folder)
        path.write_bytes(good)
    Corpus.open(folder)


def test_folder_without_a_corpus(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a corpus"):
        Corpus.open(tmp_path)
    path = folder / "regard.json"
    good = path.read_bytes()
    for broken, message in [
        ({"outcome": {"shards": [{}]}}, r"not the manifest of a corpus .shards\.0\.counts"),
        ({"identity": {"sources": 3}}, "not the manifest of a corpus"),
        ({"identity": {"settings": [1]}}, "not the manifest of a corpus"),
    ]:
        path.write_bytes(good)
        change_record(folder, **broken)
        with pytest.raises(InputError, match=message):
            Corpus.open(folder)
    path.write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        Corpus.open(folder)
