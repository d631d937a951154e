"""Work that is killed, damaged, or meets a full disk: the same command gives the same files.

The first tests run over all users of `DurableFolder`: shards of a bulk job, its Parquet parts, a corpus, an index and a
run of training, whose parts are checkpoints. The others are about single saves: of a file, a folder, a model and a
checkpoint. Whole commands are in `test_damage`.
"""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
import torch

from regard.checkpoints.files import read_tensors, write_folder
from regard.checkpoints.loaded_model import LoadedModel
from regard.data.corpus import build_corpus, train_tokenizer
from regard.errors import InputError, RegardError
from regard.events import Note, Progress, drain
from regard.files.disk import COMMITTED, REMOVALS, TEMPORARY, atomic_write, finish_save, replace_folder
from regard.files.durable_folder import RECORD, lock_folder
from regard.inference.bulk.job import DamageNote, Job, scan_rows
from regard.inference.bulk.shards import Block, Reader
from regard.inference.load_model import load_model
from regard.inference.search import build as index_module
from regard.inference.search.build import add_documents
from regard.inference.search.documents import IndexedText
from regard.inference.search.index_folder import durable_folder
from regard.text import Tokenizer
from regard.training.checkpoint import Checkpoints
from regard.training.events import Events
from regard.training.run import Session, run
from regard.training.run_folder import REPORT, RunFolder, RunReport
from tests.crashes import ACTIONS, Crash, die_after
from tests.data.corpus.conftest import sentence
from tests.faults import CODES, DiskFaults
from tests.training.toy_recipe import ToyConfig, ToyRecipe

ROWS = 12
Files = dict[str, bytes]
Report = Callable[[str], object]


class Stop(BaseException):
    """Stands for Ctrl-C."""


@dataclass(frozen=True)
class Work:
    """Work in `folder` below a given one. `run(path, stop, other, restart, report)` stops when `stop` parts are
    finished; `other` are other settings. `parts` are the third part of unfinished work, or its files."""

    run: Callable[[Path, int | None, bool, bool, Report], object]
    folder: str
    parts: tuple[str, ...]
    record: str = RECORD
    mended: tuple[str, ...] = ()  # files of finished work that are made again if they are damaged
    restartable: bool = True  # with a damaged record; of an index, it may be all that is missing
    clears: bool = True  # its restart begins in a folder that is not empty; who deletes a run needs an empty one

    def __call__(
        self,
        path: Path,
        *,
        stop: int | None = None,
        other: bool = False,
        restart: bool = False,
        report: Report = lambda problem: None,
    ) -> Files:
        path.mkdir(exist_ok=True)
        self.run(path, stop, other, restart, report)
        return contents(path)

    def stopped(self, path: Path) -> Path:
        """Leave work with three finished parts; return its folder."""
        with pytest.raises(Stop):
            self(path, stop=3)
        return path / self.folder


def contents(folder: Path) -> Files:
    """All files, except timings and what a later save deletes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and path.name != "report.json" and not any(map(TEMPORARY.fullmatch, parts)):
            found["/".join(parts)] = path.read_bytes()
    return found


def _bulk(in_parts: bool) -> Callable[[Path, int | None, bool, bool, Report], object]:
    def run(path: Path, stop: int | None, other: bool, restart: bool, report: Report) -> None:
        rows = scan_rows(
            iter(range(ROWS)), name="rows", again=lambda: iter(range(ROWS)), rereadable=True, spool=io.StringIO()
        )
        scale = 2 if other else 1
        model = LoadedModel("m", torch.nn.Linear(1, 1, bias=False), None)
        model.model.weight.data.zero_()

        def compute(shard: Iterator[int]) -> Iterator[Block | int]:
            for number in shard:
                if stop is not None and number >= 2 * stop:
                    raise Stop
                yield {"lines": np.array([number]), "vectors": np.full((1, 40), scale * number, dtype=np.float32)}

        job = Job(
            inputs=rows,
            model=model,
            settings={"scale": scale},
            compute=compute,
            load=lambda files, device: pytest.fail("the model is in memory"),
            write=_write_vectors,
            stage="",
            shard_size=2,
        )
        events = job.run(path / ("parts" if in_parts else "out.npy"), restart=restart)
        drain(events, lambda event: report(event.message) if isinstance(event, DamageNote) else None)

    return run


def _write_vectors(path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None = None) -> None:
    values = np.concatenate([block["vectors"] for block in blocks("vectors")])
    if metadata is None:
        np.save(path, values)
        return
    table = pyarrow.table({"vector": list(values)}).replace_schema_metadata(dict(metadata))
    pq.write_table(table, path, write_page_checksum=True)


class Line(ToyRecipe):
    """A run whose report has no times."""

    report_class = RunReport

    def train(self, session: Session) -> Events[RunReport | None]:
        trainer, report = session.trainer(self), RunReport(output=str(session.output))
        yield from trainer.train()
        write_folder(session.output, tensors=trainer.model.state_dict(), files={REPORT: report.file()})
        return report


def training_run(path: Path, stop: int | None, other: bool, restart: bool, report: Report) -> None:
    """A restart is what someone does who deletes the run."""
    settings = ["run.checkpoint_every=1 steps", f"training.num_epochs={3 if other else 2}"]
    job = Line(ToyConfig.load(overrides=settings))
    if restart:
        durable = RunFolder(job, path / "run").durable
        with durable.locked():
            durable.clear()

    def on_event(event: Any) -> None:
        if isinstance(event, Note):
            report(event.message)
        if event.type == "checkpoint" and event.step == stop:
            raise Stop

    drain(run(job, path / "run", resume=True, device="cpu"), on_event)
    (path / "run" / "events.jsonl").unlink(missing_ok=True)  # with times


def works(inputs: Path, model_folder: Path) -> dict[str, Work]:
    """All users; `inputs` has text.txt and a tokenizer."""
    tokenizer, model = Tokenizer.open(inputs / "tokenizer"), load_model(model_folder)
    index_module.SHARD_SIZE = 2

    def corpus(path: Path, stop: int | None, other: bool, restart: bool, report: Report) -> None:
        def on_progress(progress: object) -> None:
            if stop is not None and len(list((path / "corpus").glob("shard-*"))) == stop:
                raise Stop

        build_corpus(
            inputs / "text.txt",
            path / "corpus",
            tokenizer=tokenizer,
            shard_bytes=1500 if other else 1400,
            restart=restart,
            on_progress=on_progress,
            on_damaged=report,
        )

    def index(path: Path, stop: int | None, other: bool, restart: bool, report: Report) -> None:
        if (path / "index" / "segments").is_dir() and not (path / "index" / "adding").is_dir():
            with durable_folder(path / "index").locked():  # as for the next change
                return
        texts = [f"the film number {n} was {'dull' if other else 'good'}" for n in range(ROWS)]
        documents = [IndexedText(0, row, text) for row, text in enumerate(texts)]

        def on_event(event: object) -> None:
            if isinstance(event, DamageNote):
                report(event.message)
            embedded = event.done if isinstance(event, Progress) and event.stage == "embedding" else 0
            if stop is not None and embedded > 2 * stop:
                raise Stop

        drain(add_documents(path / "index", lambda: documents, lambda name: model, restart=restart), on_event)

    shard = tuple(f"shard-000002/{name}" for name in ("tokens.bin", "sentences.npy", "documents.npy", "shard.json"))
    return {
        "shards": Work(_bulk(in_parts=False), "out.npy.partial", ("000002.npz",)),
        "parts": Work(_bulk(in_parts=True), "parts", ("part-000002.parquet",), record=f"_{RECORD}"),
        "corpus": Work(corpus, "corpus", shard, mended=(*shard, "tokenizer/tokenizer.json")),
        "index": Work(index, "index", ("adding/vectors.npy.partial/000002.npz",), restartable=False),
        "run": Work(
            training_run, "run", ("work/checkpoints/step-000000003/model.safetensors",), restartable=False, clears=False
        ),
    }


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tiny_bert_folder: Path) -> Path:
    folder, chance = tmp_path_factory.mktemp("inputs"), random.Random(0)
    text = "\n\n".join(" ".join(sentence(chance) for _ in range(6)) for _ in range(36))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    train_tokenizer(text.split("\n"), size=150).save(folder / "tokenizer")
    (folder / "model").symlink_to(tiny_bert_folder)
    return folder


@pytest.fixture(scope="module")
def all_works(inputs: Path) -> Iterator[dict[str, Work]]:
    before = index_module.SHARD_SIZE
    yield works(inputs, inputs / "model")
    index_module.SHARD_SIZE = before


@pytest.fixture(params=["shards", "parts", "corpus", "index", "run"])
def work(request: pytest.FixtureRequest, all_works: dict[str, Work]) -> Work:
    return all_works[request.param]


@pytest.fixture
def whole(work: Work, tmp_path: Path) -> Files:
    """What undisturbed work leaves."""
    return work(tmp_path / "whole")


def spread(total: int, amount: int) -> list[int]:
    """`amount` numbers from 0 to `total`, the last one excluded."""
    return sorted({index * total // amount for index in range(amount)} | {total - 1})


def count_actions(work: Work, path: Path, **options: Any) -> int:
    """The disk operations of a run at which `die_after` can stop it."""
    actions = 0

    def counting(action: Callable[..., object]) -> Callable[..., object]:
        def act(*arguments: object, **keywords: object) -> object:
            nonlocal actions
            actions += 1
            return action(*arguments, **keywords)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for module, name in ACTIONS:
            patch.setattr(module, name, counting(getattr(module, name)))
        work(path, **options)
    return actions


def test_a_crash_at_any_operation_changes_no_byte(work: Work, whole: Files, tmp_path: Path) -> None:
    total = count_actions(work, tmp_path / "counted")
    assert total > 10
    for number in spread(total, 10):
        path = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
            die_after(patch, number)
            work(path)
        assert work(path) == whole, number


def test_a_crash_while_other_work_is_deleted(work: Work, whole: Files, tmp_path: Path) -> None:
    """What is left is recognized, and never mixed with the other work."""
    folder = work.stopped(tmp_path / "begun")
    for number in range(9):
        path = shutil.copytree(tmp_path / "begun", tmp_path / str(number))
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
            die_after(patch, number)
            work(path, other=True, restart=True)
        problems: list[str] = []
        assert work(path, restart=True, report=problems.append) == whole and not problems, number
    assert folder.is_dir()


KILLED = """
import sys
from pathlib import Path
from tests.crashes import kill_after
from tests.test_durable_folders import works

work = works(Path(sys.argv[1]), Path(sys.argv[1], "model"))[sys.argv[2]]
kill_after(int(sys.argv[3]))
work(Path(sys.argv[4]))
"""


@pytest.mark.long
def test_a_killed_process_changes_no_byte(
    work: Work, whole: Files, tmp_path: Path, all_works: dict[str, Work], inputs: Path
) -> None:
    (name,) = [name for name, one in all_works.items() if one is work]
    path = tmp_path / "killed"
    moment = count_actions(work, tmp_path / "counted") // 2
    command = [sys.executable, "-c", KILLED, str(inputs), name, str(moment), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (path / work.folder / work.record).is_file()
    assert work(path) == whole
    assert not list((path / work.folder).glob(".*"))


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_a_fault_at_any_operation_is_an_error_or_harmless(work: Work, whole: Files, tmp_path: Path, code: int) -> None:
    with DiskFaults(tmp_path / "counted") as disk:
        work(tmp_path / "counted")
    errors = []
    for number in spread(len(disk.operations), 12):
        path = tmp_path / str(number)
        with DiskFaults(path, fail_at=number, code=code) as faulty:
            try:
                work(path)
            except (RegardError, OSError) as error:
                errors.append(str(error))
                assert str(path) in str(error) or os.strerror(code) in str(error), faulty.failed
        assert work(path) == whole, faulty.failed
    assert len(errors) > 5
    assert any(("the disk is full" if code == errno.ENOSPC else os.strerror(code)) in error for error in errors)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_a_damaged_file_is_named_and_made_again(
    work: Work, whole: Files, tmp_path: Path, damage: str, finished: bool
) -> None:
    if finished:
        work(tmp_path / "begun")
    else:
        work.stopped(tmp_path / "begun")
    for name in work.mended if finished else work.parts:
        path = shutil.copytree(tmp_path / "begun", tmp_path / name.replace("/", "-"))
        part = path / work.folder / name
        good = part.read_bytes()
        # In a shard's record a digit, in other files a byte in the middle.
        half = good.index(b'"documents"') + 13 if name.endswith("shard.json") else len(good) // 2
        if damage == "missing":
            part.unlink()
        else:
            part.write_bytes(good[:half] + (bytes([good[half] ^ 1]) + good[half + 1 :] if damage == "flip" else b""))
        problems: list[str] = []
        assert work(path, report=problems.append) == whole
        if damage != "missing":
            assert [str(part) in problem for problem in problems] == [True]


def damaged_records(good: bytes) -> Iterator[bytes]:
    yield from (b"", b"{", b"[]", good[:-9])
    for old, new in (
        (b'"kind"', b'"kinc"'),
        (b"checksum", b"chfcksum"),
        (b'"regard"', b'"regarc"'),
        (b"false", b"true"),
    ):
        yield good.replace(old, new)


def test_a_damaged_record_is_an_error_and_nothing_is_lost(work: Work, whole: Files, tmp_path: Path) -> None:
    path = work.stopped(tmp_path / "begun") / work.record
    good, before = path.read_bytes(), contents(tmp_path / "begun")
    for content in damaged_records(good):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"regard\.json"):
            work(tmp_path / "begun")
        path.write_bytes(good)
        assert contents(tmp_path / "begun") == before
    if work.restartable:
        for content in damaged_records(good):
            again = shutil.copytree(tmp_path / "begun", tmp_path / "again")
            (again / work.folder / work.record).write_bytes(content)
            assert work(again, restart=True) == whole
            shutil.rmtree(again)
    assert work(tmp_path / "begun") == whole


def test_other_work_is_refused_and_nothing_is_lost(work: Work, whole: Files, tmp_path: Path) -> None:
    work.stopped(tmp_path / "begun")
    before = contents(tmp_path / "begun")
    with pytest.raises(InputError, match=r"(scale|epochs|bytes) was \d+ and is \d+|input changed"):
        work(tmp_path / "begun", other=True)
    if work.restartable:  # texts to index are read again before their vectors
        assert contents(tmp_path / "begun") == before
    again = shutil.copytree(tmp_path / "begun", tmp_path / "again")
    assert work(again, other=True, restart=True) == work(tmp_path / "fresh", other=True)
    assert work(tmp_path / "begun") == whole


@pytest.mark.parametrize("restart", [False, True])
def test_a_folder_of_someone_else_is_not_touched(work: Work, tmp_path: Path, restart: bool) -> None:
    folder = tmp_path / work.folder
    for name, content in (("thesis.txt", "words"), (work.record, '{"name": "a web extension"}')):
        folder.mkdir()
        (folder / name).write_text(content)
        (folder / Path(work.parts[0]).parts[0]).write_text("mine")
        before = contents(tmp_path)
        with pytest.raises(InputError, match=rf"{folder.name}(.*it holds|/_?regard\.json: not a record)"):
            work(tmp_path, restart=restart)
        assert contents(tmp_path) == before
        shutil.rmtree(folder)


def test_files_of_someone_else_in_a_folder_survive(work: Work, tmp_path: Path) -> None:
    mine = work.stopped(tmp_path / "begun") / "thesis.txt"
    mine.write_text("words")
    work(tmp_path / "begun", restart=work.clears)
    assert mine.read_text() == "words"


def test_a_file_in_place_of_the_folder(work: Work, tmp_path: Path) -> None:
    (tmp_path / work.folder).write_text("words")
    with pytest.raises(RegardError, match="cannot be written"):
        work(tmp_path)
    assert (tmp_path / work.folder).read_text() == "words"


def test_one_process_at_a_time(work: Work, whole: Files, tmp_path: Path) -> None:
    folder = work.stopped(tmp_path / "begun")
    with lock_folder(folder, name=work.record.replace(RECORD, "lock")):
        before = contents(tmp_path / "begun")
        for restart in (False, True):
            with pytest.raises(InputError, match=rf"{folder.name} is in use by process {os.getpid()}"):
                work(tmp_path / "begun", restart=restart)
        assert contents(tmp_path / "begun") == before
    assert work(tmp_path / "begun") == whole


def test_the_lock_of_a_dead_process_is_taken_over(work: Work, whole: Files, tmp_path: Path) -> None:
    """A process that holds the lock is killed with SIGKILL; its process id in the file no longer matters."""
    lock = work.stopped(tmp_path / "begun") / work.record.replace(RECORD, "lock")
    program = (
        "import fcntl, os, signal, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        "file.write(str(os.getpid())); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(lock)]).returncode == -signal.SIGKILL
    assert lock.read_text(encoding="ascii")
    assert work(tmp_path / "begun") == whole


SAVED = ("is saved", "new content is written")  # phrases of an error after the commit


def file(folder: Path, version: int) -> None:
    atomic_write(folder / "a.txt", b"%d" % version * 20)


def plain_folder(folder: Path, version: int) -> None:
    removed = ["b", "sub/c"] if version > 1 else []
    with replace_folder(folder / "f", remove=removed) as staging:
        (staging / "sub").mkdir()
        for name in ("a", "sub/d", *([] if removed else ["b", "sub/c"])):
            (staging / name).write_bytes(b"%d" % version * 20)


def model_folder(folder: Path, version: int) -> None:
    """The second save has shards and lacks a file of the first."""
    tensors = {name: torch.full((8,), float(version)) for name in ("x", "y")}
    files = {"config.json": b"{}" * version, **({"vocab.txt": b"old"} if version == 1 else {})}
    write_folder(folder / "m", tensors=tensors, files=files, shard_bytes=40 if version > 1 else 10**9)


SAVES: dict[str, Callable[[Path, int], None]] = {"file": file, "folder": plain_folder, "model": model_folder}


@contextmanager
def outcome(messages: list[str]) -> Iterator[None]:
    try:
        yield
    except (RegardError, OSError) as error:
        messages.append(str(error))


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "existing"])
@pytest.mark.parametrize("name", SAVES)
def test_a_fault_at_any_operation(tmp_path: Path, name: str, fresh: bool, code: int) -> None:
    save, before, after = SAVES[name], tmp_path / "before", tmp_path / "after"
    before.mkdir()
    if not fresh:
        save(before, 1)
    shutil.copytree(before, after)
    save(after, 2)
    old, new, outcomes = contents(before), contents(after), set()
    for number in count():
        folder = shutil.copytree(before, tmp_path / str(number))
        messages: list[str] = []
        with DiskFaults(folder, fail_at=number, code=code) as disk, outcome(messages):
            save(folder, 2)
        if not disk.failed:
            break
        for name_in_folder in ("f", "m"):
            finish_save(folder / name_in_folder)  # as every reader does first
        found, where = contents(folder), f"{number}: {disk.failed}; {messages}"
        assert found in (old, new), where
        if found == new:
            assert not messages or any(word in messages[0] for word in SAVED), where
        else:
            assert messages and not any(word in messages[0] for word in SAVED), where
            assert name == "folder" or ("cannot be written" in messages[0] and "unchanged" in messages[0]), where
        outcomes.add((found == new, bool(messages)))
        with DiskFaults(folder):
            save(folder, 2)  # the next save works
        assert contents(folder) == new, where
    assert number > 6 and {(False, True), (True, True)} <= outcomes


def test_a_folder_that_cannot_be_listed_loses_nothing(tmp_path: Path) -> None:
    """After an EIO while the new files are listed, they still exist, and the next reader moves them."""
    committed = tmp_path / "f" / COMMITTED
    (committed / "sub").mkdir(parents=True)
    (tmp_path / "f" / "old").touch()
    (committed / REMOVALS).write_text("old")
    for name in ("a", "sub/b"):
        (committed / name).write_text("new")
    with DiskFaults(tmp_path / "f") as disk:
        pass
    for number in range(2):  # the folder, and the one in it
        with DiskFaults(tmp_path / "f", fail_at=number) as disk, pytest.raises(RegardError, match="is saved in"):
            finish_save(tmp_path / "f")
        assert disk.failed is not None and disk.failed.startswith("scandir")
        assert (tmp_path / "f" / "old").exists() and (committed / "sub" / "b").exists()
    finish_save(tmp_path / "f")
    assert sorted(contents(tmp_path / "f")) == ["a", "sub/b"]


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_a_fault_at_any_operation_of_a_checkpoint(tmp_path: Path, code: int) -> None:
    """Whatever fails, the newest complete checkpoint is the old or the new one, and the next save works."""

    def tensors(step: int) -> dict[str, Any]:
        return {"weight": torch.full((4,), float(step))}

    steps = []
    Checkpoints(tmp_path / "before").save(1, tensors(1), {"seen": 1})
    for number in count():
        checkpoints = Checkpoints(shutil.copytree(tmp_path / "before", tmp_path / str(number)), keep=1)
        messages: list[str] = []
        with DiskFaults(checkpoints.folder, fail_at=number, code=code) as disk, outcome(messages):
            checkpoints.save(2, tensors(2), {"seen": 2})
        if not disk.failed:
            break
        found = checkpoints.latest(on_damaged=pytest.fail)
        assert found is not None and torch.equal(found.tensors["weight"], tensors(found.step)["weight"])
        where = f"{number}: {disk.failed}; {messages}"
        if found.step == 2:
            assert not messages or any(word in messages[0] for word in SAVED), where
        else:
            assert messages and "is saved" not in messages[0], where
        steps.append(found.step)
        with DiskFaults(checkpoints.folder):
            checkpoints.save(3, tensors(3), {})
            checkpoints.save(4, tensors(4), {})
        assert [name for name in os.listdir(checkpoints.folder) if not TEMPORARY.fullmatch(name)] == ["step-000000004"]
    assert set(steps) == {1, 2} and len(steps) > 10


def test_a_blocking_folder_is_detected_before_anything_changes(tmp_path: Path) -> None:
    plain_folder(tmp_path, 1)
    (tmp_path / "f" / "new" / "mine").mkdir(parents=True)
    before = contents(tmp_path)
    with (
        pytest.raises(RegardError, match=r"f/new: is a folder"),
        replace_folder(tmp_path / "f") as staging,
    ):
        (staging / "new").write_text("a file")
    with pytest.raises(RegardError, match=r"f/a: is a file"), replace_folder(tmp_path / "f") as staging:
        (staging / "a").mkdir()
        (staging / "a" / "b").write_text("a file in a folder")
    assert contents(tmp_path) == before and not (tmp_path / "f" / COMMITTED).exists()


def test_the_shim_counts_the_operations_of_a_save(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with DiskFaults(tmp_path) as disk:
        model_folder(tmp_path, 1)
        read_tensors(tmp_path / "m")
    kinds = {operation.split()[0] for operation in disk.operations}
    assert {"write", "close", "create", "fsync", "rename", "mkdir", "scandir", "chmod"} <= kinds
    with DiskFaults(tmp_path) as disk:
        plain_folder(tmp_path, 2)
    assert {"replace", "unlink", "rmdir"} <= {operation.split()[0] for operation in disk.operations}
