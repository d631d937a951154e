"""Pretraining from a corpus on an object store: the order of a local folder, a bounded cache, and clear errors."""

from __future__ import annotations

import itertools
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.data.corpus import Corpus, build_corpus
from regard.data.corpus import shard_cache as module
from regard.data.corpus.reader import upload_corpus
from regard.data.corpus.shard_cache import CachedTokens, ShardCache
from regard.errors import InputError
from regard.files import storage
from regard.text import Tokenizer
from regard.training.recipes.pretraining.corpus import open_dataset
from regard.training.recipes.pretraining.objectives import PretrainingDataset, objective_class
from tests.object_store import ObjectStore
from tests.training.recipes.pretraining.runs import command, config, events

SHARD_BYTES = 2000


@pytest.fixture(scope="session")
def shards(source: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of many shards."""
    folder = tmp_path_factory.mktemp("shards") / "corpus"
    build_corpus(source, folder, tokenizer=Corpus.open(corpus).tokenizer, shard_bytes=SHARD_BYTES)
    assert Corpus.open(folder).shards > 9
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def address(object_store: ObjectStore, shards: Path) -> str:
    """The corpus on an object store."""
    address = f"{object_store.address}/corpora/story"
    list(upload_corpus(shards, address))
    return address


def dataset_of(folder: object, *, cache_bytes: int = module.CACHE_BYTES, **changed: object) -> PretrainingDataset:
    family = str(changed.pop("family", "bert"))
    return open_dataset(config(family, **changed), [str(folder)], Path(), held_out=False, cache_bytes=cache_bytes)


def batches(dataset: PretrainingDataset, count: int, **changed: object) -> list[list[NDArray[Any]]]:
    """The first micro-batches of a run."""
    family = str(changed.pop("family", "bert"))
    settings = config(family, **changed)
    stream = objective_class(settings).micro_batches(settings, dataset, 256).stream()
    return [
        [value.numpy() for value in vars(batch).values() if hasattr(value, "numpy")]
        for batch in itertools.islice(stream, count)
    ]


def assert_same(first: list[list[NDArray[Any]]], second: list[list[NDArray[Any]]]) -> None:
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert len(one) == len(other) and all(map(np.array_equal, one, other))


KINDS: dict[str, dict[str, object]] = {
    "next": {"objective_sentence_pairs": "next"},
    "order": {"objective_sentence_pairs": "order"},
    "none": {"objective_sentence_pairs": "none"},
    "elmo": {"family": "elmo"},
}


@pytest.mark.parametrize("shuffle", [pytest.param(0, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("kind", ["next", *(pytest.param(kind, marks=pytest.mark.long) for kind in list(KINDS)[1:])])
def test_the_order_is_that_of_a_local_folder(kind: str, shuffle: int, address: str, shards: Path) -> None:
    """For more than an epoch."""
    changed = {**KINDS[kind], "data_shuffle_shards": shuffle}
    local, remote = dataset_of(shards, **changed), dataset_of(address, **changed)
    assert local.digest == remote.digest and remote.text.tokens > 4000
    assert all(isinstance(piece, CachedTokens) for piece in remote.text.pieces)
    assert_same(batches(local, 30, **changed), batches(remote, 30, **changed))


def test_end_tokens_of_a_remote_corpus(object_store: ObjectStore, source: Path, tmp_path: Path) -> None:
    """GPT's objective adds a token after each document."""
    from regard.data.corpus import train_tokenizer

    tokenizer = train_tokenizer(source.read_text().splitlines(), kind="bpe", size=300)
    build_corpus(source, tmp_path / "gpt", tokenizer=tokenizer, shard_bytes=SHARD_BYTES)
    list(upload_corpus(tmp_path / "gpt", f"{object_store.address}/gpt"))
    changed = {"family": "gpt", "data_shuffle_shards": 2}
    local, remote = (dataset_of(folder, **changed) for folder in (tmp_path / "gpt", f"{object_store.address}/gpt"))
    assert_same(batches(local, 40, **changed), batches(remote, 40, **changed))


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("shard-*/*") if path.is_file())


def test_a_small_cache_holds_the_groups_that_are_read(
    address: str, shards: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(path.stat().st_size for path in shards.glob("shard-*/*"))
    limit = 5 * largest
    fetched: list[str] = []
    most = 0
    fetch = module.fetch

    def counted(source: str, path: Path) -> None:
        nonlocal most
        fetch(source, path)
        fetched.append(source)
        most = max(most, disk_bytes(own_cache))

    monkeypatch.setattr(module, "fetch", counted)
    monkeypatch.setattr(module, "THREADS", 1)
    changed: dict[str, object] = {"objective_sentence_pairs": "next", "data_shuffle_shards": 2}
    remote = dataset_of(address, cache_bytes=limit, **changed)
    fetched.clear()
    found = batches(remote, 25, **changed)
    assert_same(found, batches(dataset_of(shards, **changed), 25, **changed))
    wait_for_fetches(cache_of(remote))
    assert 0 < disk_bytes(own_cache) <= limit
    assert most <= limit
    tokens = [name for name in fetched if name.endswith("tokens.bin")]
    epochs = 25 * 256 / remote.text.tokens
    assert len(tokens) <= (epochs + 1) * (len(remote.text.pieces) + 1) + 4, "each shard is fetched about once per epoch"


def cache_of(dataset: PretrainingDataset) -> ShardCache:
    piece = dataset.text.pieces[0]
    assert isinstance(piece, CachedTokens)
    return piece.cache


def wait_for_fetches(cache: ShardCache) -> None:
    deadline = time.monotonic() + 60
    while cache._pending:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_next_group_is_fetched_ahead(address: str) -> None:
    changed: dict[str, object] = {"objective_sentence_pairs": "none", "data_shuffle_shards": 2}
    remote = dataset_of(address, **changed)
    cache = cache_of(remote)
    batches(remote, 1, **changed)
    wait_for_fetches(cache)
    assert len(cache._kept) == 4 and all((cache.folder / name).is_file() for name in cache._kept)


def test_a_cache_that_is_too_small_is_refused(address: str, shards: Path) -> None:
    largest = max(path.stat().st_size for path in shards.glob("shard-*/tokens.bin"))
    with pytest.raises(InputError, match=r"shards of s3://.*random order.*data\.shuffle_shards=2"):
        dataset_of(address, cache_bytes=4 * largest + 1)
    with pytest.raises(InputError, match=r"2 times 3 shards.*set data\.shuffle_shards=2"):
        dataset_of(address, cache_bytes=4 * largest + 1, data_shuffle_shards=3)
    with pytest.raises(InputError, match=r"smaller than a shard of s3://.*larger --cache-size"):
        dataset_of(address, cache_bytes=100)


@pytest.mark.long
@pytest.mark.parametrize("damage", ["missing", "damaged", "truncated"])
def test_a_bad_shard_is_named(damage: str, address: str, object_store: ObjectStore, own_cache: Path) -> None:
    remote = dataset_of(address, objective_sentence_pairs="none")
    key = "corpora/story/shard-000004/tokens.bin"
    content = object_store.get(key)
    if damage == "missing":
        storage.remove(f"{object_store.address}/{key}")
    else:
        object_store.put({key: content[:-2] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1])})
    expected = "there is no file or folder" if damage == "missing" else "is damaged: it differs from"
    with pytest.raises(InputError, match=rf"{expected}|tokens\.bin {expected}") as caught:
        batches(remote, 40, objective_sentence_pairs="none")
    assert f"{object_store.address}/{key}" in str(caught.value)
    assert not (cache_of(remote).folder / "shard-000004" / "tokens.bin").exists()
    wait_for_fetches(cache_of(remote))
    assert not [*own_cache.rglob("*partial*")]
    object_store.put({key: content})
    assert batches(remote, 40, objective_sentence_pairs="none")


def test_a_damaged_copy_is_fetched_once_more(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(address)
    assert corpus.cache is not None
    fetch, calls = module.fetch, []

    def flaky(source: str, path: Path) -> None:
        calls.append(source)
        fetch(source, path)
        if len(calls) == 1:
            path.write_bytes(b"half")

    monkeypatch.setattr(module, "fetch", flaky)
    assert corpus.cache.path("shard-000000/tokens.bin").stat().st_size > 4 and len(calls) == 2


def test_unfinished_and_missing_corpora(object_store: ObjectStore, address: str, shards: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file or folder s3://.*/none/regard\.json"):
        Corpus.open(f"{object_store.address}/none")
    object_store.put({"bad/regard.json": b'{"format": 1}'})
    with pytest.raises(InputError, match=r"s3://.*/bad/regard\.json"):
        Corpus.open(f"{object_store.address}/bad")
    storage.remove(f"{address}/tokenizer/tokenizer.json")
    with pytest.raises(InputError, match=r"s3://.*tokenizer\.json"):
        Corpus.open(address)


def test_the_manifest_is_uploaded_last(object_store: ObjectStore, shards: Path) -> None:
    address = f"{object_store.address}/late"
    steps: Iterator[Any] = upload_corpus(shards, address)
    *before, last = steps
    assert last.done == last.total == len(before)
    for event in itertools.islice(upload_corpus(shards, address), len(before) - 1):
        assert event.total == last.total
        assert not storage.exists(f"{address}/regard.json")


def test_random_access_and_pickling(address: str, shards: Path) -> None:
    local, remote = Corpus.open(shards), pickle.loads(pickle.dumps(Corpus.open(address)))
    for number in (0, 60, 119):
        assert all(map(np.array_equal, local.document(number), remote.document(number)))
    assert isinstance(remote.tokenizer, Tokenizer) and remote.tokenizer.vocabulary == local.tokenizer.vocabulary


@pytest.mark.usefixtures("fast_run_settings")
def test_a_run_from_a_bucket_has_the_losses_of_a_local_run(address: str, shards: Path, tmp_path: Path) -> None:
    from regard.cli.app import run

    run_on: Callable[..., int] = lambda source, name: run(  # noqa: E731
        command(source, tmp_path / name, data_shuffle_shards=3)
    )
    assert run_on(address, "remote") == 0 and run_on(shards, "local") == 0
    losses = [[event["loss"] for event in events(tmp_path / name, "step")] for name in ("local", "remote")]
    assert losses[0] == losses[1] and len(losses[0]) > 3
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "remote")]
    assert files[0] == files[1]
    shutil.rmtree(tmp_path / "remote")
