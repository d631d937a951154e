"""Several processes build the same bytes as one, also after kills, and leave no process behind."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from regard.data.corpus import Corpus, CorpusProgress, build_corpus
from regard.errors import InputError, RegardError
from regard.text import Tokenizer
from regard.worker_process import WorkerFailure, WorkerProcess
from tests.data.corpus.test_build import SMALL, Stop, contents
from tests.object_store import ObjectStore


@pytest.fixture
def sources(source: Path, text: str, tmp_path: Path) -> list[Path]:
    other = tmp_path / "other.txt"
    other.write_text(text.replace("river", "engine") + "\n\n\u200b\n", encoding="utf-8")  # ends without a token
    return [source, other]


@pytest.fixture
def whole(sources: list[Path], wordpiece: Tokenizer, tmp_path: Path) -> dict[str, bytes]:
    build_corpus(sources, tmp_path / "whole", tokenizer=wordpiece, shard_bytes=SMALL)
    return contents(tmp_path / "whole")


def children() -> set[int]:
    """The processes that this one has started."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return {pid for pid in pids if parent_of(pid) == os.getpid()}


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


@pytest.mark.parametrize("workers", [2, 3])
def test_the_bytes_do_not_depend_on_the_number_of_workers(
    workers: int, sources: list[Path], whole: dict[str, bytes], wordpiece: Tokenizer, tmp_path: Path
) -> None:
    seen: list[CorpusProgress] = []
    out = tmp_path / "out"
    report = build_corpus(
        sources, out, tokenizer=wordpiece, shard_bytes=SMALL, workers=workers, on_progress=seen.append
    )
    assert contents(out) == whole
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "whole"))
    assert report.shards == len(seen) > 5 and seen[-1].tokens == report.counts.tokens
    assert [progress.tokens for progress in seen] == sorted(progress.tokens for progress in seen)
    Corpus.open(out, verify="always")


def test_stopped_and_resumed_with_another_number(
    sources: list[Path], whole: dict[str, bytes], wordpiece: Tokenizer, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def stop_at(shards: int) -> Callable[[CorpusProgress], None]:
        def on_progress(progress: CorpusProgress) -> None:
            if len(list(out.glob("shard-*"))) >= shards:
                raise Stop

        return on_progress

    before = children()
    for shards, workers in ((2, 2), (4, 1), (6, 3)):
        with pytest.raises(Stop):
            build_corpus(
                sources, out, tokenizer=wordpiece, shard_bytes=SMALL, workers=workers, on_progress=stop_at(shards)
            )
        assert not list(out.glob(".parts*")) and children() <= before
    report = build_corpus(sources, out, tokenizer=wordpiece, shard_bytes=SMALL, workers=2)
    assert report.resumed.documents > 0 and contents(out) == whole


PROGRAM = """
import os, signal, sys
from pathlib import Path
from regard import worker_process
from regard.data.corpus import build_corpus
from regard.text import Tokenizer

folder, tokenizer, shards, *sources = sys.argv[1:]
started = []
start = worker_process.start_process

def note(*arguments, **named):
    started.append(start(*arguments, **named))
    return started[-1]

worker_process.start_process = note

def kill(progress):
    if len(list(Path(folder).glob("shard-*"))) >= int(shards):
        print(*(process.pid for process in started), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

build_corpus(sources, folder, tokenizer=Tokenizer.open(Path(tokenizer)), shard_bytes=700, workers=2, on_progress=kill)
"""


def test_killed_and_resumed(sources: list[Path], whole: dict[str, bytes], wordpiece: Tokenizer, tmp_path: Path) -> None:
    wordpiece.save(tmp_path / "tokenizer")
    out = tmp_path / "out"
    for shards in (1, 4):
        call = [sys.executable, "-c", PROGRAM, out, tmp_path / "tokenizer", str(shards), *sources]
        process = subprocess.Popen([str(word) for word in call], stdout=subprocess.PIPE, text=True)
        pids = process.communicate(timeout=120)[0].split()
        assert process.returncode == -signal.SIGKILL and len(pids) == 2
        assert len(list(out.glob("shard-*"))) >= shards and len(list(out.glob(".parts.*"))) == 1
        wait_for_the_end_of(pids)
    build_corpus(sources, out, tokenizer=wordpiece, shard_bytes=SMALL, workers=2)
    assert contents(out) == whole
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "whole"))


def wait_for_the_end_of(pids: list[str]) -> None:
    """Workers end by themselves when the process that started them is dead."""
    deadline = time.monotonic() + 60
    while any(
        Path(f"/proc/{pid}/cmdline").exists() and b"regard.worker_pool" in Path(f"/proc/{pid}/cmdline").read_bytes()
        for pid in pids
    ):
        assert time.monotonic() < deadline, f"workers {pids} outlive the process that started them"
        time.sleep(0.05)


def test_a_worker_that_dies_is_reported_and_the_build_can_continue(
    sources: list[Path], whole: dict[str, bytes], wordpiece: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    before = children()
    send = WorkerProcess.send

    def kill_first(self: WorkerProcess, message: object) -> None:
        if isinstance(message, tuple) and message[0] == 4:
            self.process.kill()
            self.process.wait()
        send(self, message)

    alive: list[set[int]] = []
    remove = shutil.rmtree

    def watched(path: Path, ignore_errors: bool = False) -> None:
        alive.append(children() - before)
        remove(path, ignore_errors=ignore_errors)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "send", kill_first)
        patch.setattr("regard.files.disk.shutil.rmtree", watched)
        with pytest.raises(RegardError, match=r"ended unexpectedly \(SIGKILL\).*the same command continues"):
            build_corpus(sources, out, tokenizer=wordpiece, shard_bytes=SMALL, workers=2)
    assert alive and not any(alive)  # a process that still writes would leave a file in a folder that is removed
    assert children() <= before and not list(out.glob(".parts*"))
    build_corpus(sources, out, tokenizer=wordpiece, shard_bytes=SMALL, workers=2)
    assert contents(out) == whole


def test_errors_are_the_same_as_in_one_process(sources: list[Path], wordpiece: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"Good.\n\n" * 500 + b"\xff")
    messages = []
    for workers in (1, 2):
        with pytest.raises(InputError, match=r"bad\.txt line 1001") as caught:
            build_corpus([*sources, tmp_path / "bad.txt"], tmp_path / "out", tokenizer=wordpiece, workers=workers)
        messages.append(str(caught.value))
        assert not (tmp_path / "out").exists()
    assert messages[0] == messages[1]
    for workers in (0, -1, 1000):
        with pytest.raises(InputError, match="workers is"):
            build_corpus(sources, tmp_path / "out", tokenizer=wordpiece, workers=workers)


@pytest.mark.parametrize(
    "error",
    [InputError("m"), RegardError("m"), OSError(28, "m"), RuntimeError("m"), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_failures_of_workers_keep_their_kind(error: Exception) -> None:
    found = WorkerFailure.of(error).error()
    if isinstance(error, MemoryError):
        assert type(found) is RegardError and "not enough memory" in str(found)
    else:
        assert type(found) is type(error) and str(found).endswith("m")
    assert getattr(found, "errno", None) == getattr(error, "errno", None)


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zst"])
def test_parts_of_compressed_files(
    suffix: str, sources: list[Path], whole: dict[str, bytes], wordpiece: Tokenizer, tmp_path: Path
) -> None:
    """Each worker reads on in a file that it has open."""
    pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstandard.compress}[suffix]
    packed = [tmp_path / f"{number}.txt.{suffix}" for number in range(2)]
    for path, source in zip(packed, sources, strict=True):
        path.write_bytes(pack(source.read_bytes()))
    build_corpus(packed, tmp_path / "out", tokenizer=wordpiece, shard_bytes=SMALL, workers=2)
    found = contents(tmp_path / "out")
    assert [file for file in found if found[file] != whole[file]] == ["regard.json"]


def test_sources_on_an_object_store(
    object_store: ObjectStore, sources: list[Path], whole: dict[str, bytes], wordpiece: Tokenizer, tmp_path: Path
) -> None:
    object_store.put({"texts/1.txt": sources[0].read_bytes(), "texts/2.txt": sources[1].read_bytes(), "x.md": b""})
    address = f"{object_store.address}/texts"
    for name, source, workers in (("a", address, 1), ("b", f"{address}/*.txt", 2)):
        build_corpus(source, tmp_path / name, tokenizer=wordpiece, shard_bytes=SMALL, workers=workers)
        found = contents(tmp_path / name)
        assert [file for file in found if found[file] != whole[file]] == ["regard.json"]
    assert found["regard.json"] == contents(tmp_path / "a")["regard.json"]
    assert CREDENTIAL not in found["regard.json"]
    again = build_corpus(address, tmp_path / "a", tokenizer=wordpiece, shard_bytes=SMALL)
    assert again.counts == again.resumed
    object_store.put({"texts/2.txt": b"Another text.\n"})
    with pytest.raises(InputError, match=r"the source s3://.*/texts/2\.txt changed"):
        build_corpus(address, tmp_path / "a", tokenizer=wordpiece, shard_bytes=SMALL)


CREDENTIAL = b"the-secret-of-all-tests"
