"""An index on disk: built, searched, extended, thinned out, killed and damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, RegardError
from regard.events import Event, Progress, drain
from regard.files.json_files import with_checksum
from regard.inference.load_model import load_model
from regard.inference.search import build as index_module
from regard.inference.search import index_folder
from regard.inference.search.build import add_documents
from regard.inference.search.documents import Documents, IndexedText, write_documents
from regard.inference.search.index import Index, open_index
from tests.crashes import Crash, die_after

TEXTS = [
    "the film was good",
    "a bad day",
    "the water is hot",
    "they love the film",
    "we write a long word",
    "the sound of water",
    "people call him good",
    "a dull film",
]


@pytest.fixture(scope="module")
def model(tiny_bert_folder: Path) -> LoadedModel:
    return load_model(tiny_bert_folder)


def numbered(texts: Iterable[str]) -> list[IndexedText]:
    return [IndexedText(0, row, text, {"length": len(text)}) for row, text in enumerate(texts)]


def build(folder: Path, model: LoadedModel, texts: Iterable[str] = TEXTS, **options: object) -> Index:
    drain(add_documents(folder, lambda: numbered(texts), lambda name: model, **options))  # type: ignore[arg-type]
    return open_index(folder)


def found(index: Index, query: str, top: int = 3, **options: object) -> list[str]:
    (result,) = index.search(query, top, **options).results  # type: ignore[arg-type]
    return [hit.text for hit in result.hits]


def test_hits_are_those_of_the_embedder(tmp_path: Path, model: LoadedModel, tiny_bert_folder: Path) -> None:
    index = build(tmp_path / "index", model)
    assert len(index) == len(TEXTS)
    vectors = regard.Embedder(tiny_bert_folder, normalize=True).transform([*TEXTS, "good water"])
    expected = np.argsort(-(vectors[:-1] @ vectors[-1]), kind="stable")
    (result,) = index.search("good water", top=len(TEXTS)).results
    assert [hit.row for hit in result.hits] == expected.tolist()
    np.testing.assert_allclose([hit.score for hit in result.hits], (vectors[:-1] @ vectors[-1])[expected], atol=1e-5)
    first = result.hits[0]
    assert (first.rank, first.id, first.text) == (1, first.row, TEXTS[first.row])
    assert first.columns == {"length": len(first.text)}
    assert [first.text[start:end] for start, end in first.matches] == (
        [word for word in first.text.split() if word in ("good", "water")]
    )


def test_methods(tmp_path: Path, model: LoadedModel) -> None:
    index = build(tmp_path / "index", model)
    assert found(index, "film", 8, method="bm25") == ["a dull film", "the film was good", "they love the film"]
    assert index.search("film", method="bm25").model == ""
    assert len(found(index, "film", 8, method="hybrid")) == 8
    assert found(index, "unknown", method="bm25") == []
    with pytest.raises(InputError, match="did you mean 'hybrid'"):
        index.search("film", method="hybird")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="query 2 is ' '"):
        index.search(["film", " "])
    with pytest.raises(InputError, match="no approximate index"):
        index.search("film", approximate=True)


def test_texts_are_added_and_deleted(tmp_path: Path, model: LoadedModel) -> None:
    folder = tmp_path / "index"
    build(folder, model, TEXTS[:5])
    index = build(folder, model, TEXTS[5:], append=True)
    whole = build(tmp_path / "whole", model)
    assert len(index) == len(whole) == len(TEXTS) and len(index.segments) == 2
    for query in ("good water", "film"):
        for method in ("dense", "bm25", "hybrid"):
            options = {"top": 8, "method": method}
            one, other = (each.search(query, **options).results[0].hits for each in (index, whole))  # type: ignore[arg-type]
            first, second = ([hit.model_copy(update={"score": 0.0}) for hit in hits] for hits in (one, other))
            assert first == second
            assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-6)
    assert index.delete([1]) == 1
    assert len(index) == 7 and "a bad day" not in found(index, "a bad day", 8)
    assert len(open_index(folder)) == 7
    with pytest.raises(InputError, match="no text with the id '1'"):
        index.delete([1])
    index = build(folder, model, ["one more day"], append=True)
    assert {hit.row for hit in index.search("day", 9).results[0].hits} == {0, 2, 3, 4, 5, 6, 7, 8}


def test_compaction_keeps_rows_ids_and_scores(tmp_path: Path, model: LoadedModel) -> None:
    index = build(tmp_path / "index", model)
    before = {hit.row: hit for hit in index.search("good water", 8).results[0].hits}
    index.delete([0, 3])
    assert index.manifest.num_deleted == 2
    index.delete(["6"])  # more than a quarter
    assert index.manifest.num_deleted == 0 and index.manifest.rows == 5 == len(index)
    after = {hit.row: hit for hit in index.search("good water", 8).results[0].hits}
    assert set(after) == {1, 2, 4, 5, 7}
    assert all(replace_rank(hit) == replace_rank(before[row]) for row, hit in after.items())
    assert sorted(os.listdir(index.folder / "segments")) == [index.manifest.segments[0].name]
    assert not list(index.folder.glob("deleted-*"))
    index.verify()
    index.delete([1, 2, 4, 5, 7])
    assert len(index) == 0 and found(index, "film") == []
    assert len(build(index.folder, model, ["a film"], append=True)) == 1


def replace_rank(hit: object) -> object:
    return hit.model_copy(update={"rank": 0})  # type: ignore[attr-defined]


def test_many_segments_are_joined(tmp_path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_folder, "MAX_SEGMENTS", 2)
    folder = tmp_path / "index"
    build(folder, model, TEXTS[:3])
    for text in TEXTS[3:]:
        index = build(folder, model, [text], append=True)
    assert len(index) == len(TEXTS) and len(index.segments) <= 2
    assert found(index, "a dull film", 1) == ["a dull film"]


def test_ids_are_unique(tmp_path: Path, model: LoadedModel) -> None:
    def with_ids(*ids: str) -> list[IndexedText]:
        return [IndexedText(name, row, TEXTS[row]) for row, name in enumerate(ids)]

    folder = tmp_path / "index"
    with pytest.raises(InputError, match="row 2 has the id 'a', which row 0 has"):
        drain(add_documents(folder, lambda: with_ids("a", "b", "a"), lambda name: model, id_column="key"))
    drain(add_documents(folder, lambda: with_ids("a", "b"), lambda name: model, id_column="key"))
    with pytest.raises(InputError, match="row 1 has the id 'b', which row 1 has"):
        drain(add_documents(folder, lambda: with_ids("c", "b"), lambda name: model, id_column="key", append=True))
    index = open_index(folder)
    assert len(index) == 2 and {hit.id for hit in index.search("film").results[0].hits} == {"a", "b"}


def test_another_model_is_refused(tmp_path: Path, model: LoadedModel, tiny_bert_folder: Path) -> None:
    folder = tmp_path / "index"
    build(folder, model)
    changed, tokenizer = regard.load(tiny_bert_folder)
    next(iter(changed.parameters())).data[0, 0] += 1
    other = LoadedModel("other", changed, tokenizer)
    with pytest.raises(InputError, match=r"built with .*tiny-bert.*, and other has other"):
        open_index(folder).use_model(other)
    with pytest.raises(InputError, match="other has other weights"):
        build(folder, other, ["new"], append=True)
    assert len(open_index(folder)) == len(TEXTS)
    copied = tmp_path / "copied"
    regard.save(*regard.load(tiny_bert_folder)[:1], copied, tokenizer)
    index = open_index(folder)
    index.load_model(copied)
    assert found(index, "a bad day", 1) == ["a bad day"]


def test_folders_of_others_are_refused(tmp_path: Path, model: LoadedModel) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="which Regard did not write"):
        build(tmp_path / "mine", model)
    build(tmp_path / "index", model)
    with pytest.raises(InputError, match="holds an index of 8 texts; --append adds"):
        build(tmp_path / "index", model)
    with pytest.raises(InputError, match="no index to add to"):
        build(tmp_path / "none", model, append=True)
    with pytest.raises(InputError, match="there is no such folder"):
        open_index(tmp_path / "none")
    with pytest.raises(InputError, match="there are no texts"):
        build(tmp_path / "empty", model, [])


@pytest.mark.parametrize("damage", ["manifest", "size", "content", "missing"])
def test_damage_is_noticed(tmp_path: Path, model: LoadedModel, damage: str) -> None:
    index = build(tmp_path / "index", model)
    path = index.folder / "regard.json" if damage == "manifest" else index.segments[0].folder / "vectors.npy"
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        data[-5] ^= 1
        path.write_bytes(data if damage != "size" else data[:-4])
    with pytest.raises(RegardError, match=r"damaged|cannot be read|not valid JSON|checksum"):
        open_index(index.folder).verify()


def test_a_manifest_cannot_leave_the_folder(tmp_path: Path, model: LoadedModel) -> None:
    index = build(tmp_path / "index", model)
    path = index.folder / "regard.json"
    document = json.loads(path.read_text())
    del document["checksum"]
    document["outcome"]["segments"][0]["name"] = "../../other"
    path.write_text(json.dumps(with_checksum(document)))
    with pytest.raises(RegardError, match=r"segments\.0\.name"):
        open_index(index.folder)


def test_opening_reads_neither_vectors_nor_texts(
    tmp_path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build(tmp_path / "index", model).folder
    read: list[int] = []
    monkeypatch.setattr(Documents, "__getitem__", lambda self, position: read.append(position))
    index = open_index(folder)
    assert isinstance(index.segments[0].vectors, np.memmap) and not read
    assert "postings" not in vars(index.segments[0])


def test_documents_are_what_was_written(tmp_path: Path) -> None:
    written = [
        IndexedText("ü\n", 0, 'a "quoted"\nline, 😀', {"n": np.int64(3), "x": float("nan"), "y": np.float32(0.5)}),
        IndexedText(7, 5, "lone \ud800 surrogate", {"flag": True, "none": None, "path": Path("a")}),
    ]
    assert list(write_documents(tmp_path, written)) == [1, 2]
    documents = Documents(tmp_path)
    expected = [
        replace(written[0], columns={"n": 3, "x": None, "y": 0.5}),
        replace(written[1], columns={"flag": True, "none": None, "path": "a"}),
    ]
    assert list(documents) == expected == [documents[0], documents[1]]


def test_an_index_is_saved_elsewhere(tmp_path: Path, model: LoadedModel) -> None:
    index = build(tmp_path / "index", model)
    index.delete([1])
    index.save(tmp_path / "copy")
    assert index.folder == tmp_path / "copy" and len(open_index(tmp_path / "copy")) == 7
    index.verify()
    with pytest.raises(InputError, match="is not empty"):
        index.save(tmp_path / "index")


def test_a_killed_run_continues_behind_its_shards(
    tmp_path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "SHARD_SIZE", 2)
    folder = tmp_path / "index"

    def events() -> Iterator[Event]:
        return add_documents(folder, lambda: numbered(TEXTS), lambda name: model)

    for event in events():
        if isinstance(event, Progress) and event.stage == "embedding" and event.done >= 5:
            break  # the generator is closed, as by Ctrl-C
    with pytest.raises(InputError, match="is not an index"):
        open_index(folder)
    with pytest.raises(InputError, match="another unfinished bulk job: the input changed"):
        build(folder, model, TEXTS[:-1])
    assert "continuing behind 4 of 8 texts" in [event.line() for event in events()]
    assert found(open_index(folder), "a bad day", 1) == ["a bad day"]


def test_rows_that_do_not_exist_are_damage(tmp_path: Path, model: LoadedModel) -> None:
    folder = build(tmp_path / "index", model).segments[0].folder
    rows = np.load(folder / "bm25_rows.npy")
    np.save(folder / "bm25_rows.npy", rows + 1000)
    with pytest.raises(RegardError, match="is damaged"):
        open_index(tmp_path / "index").search("film", method="bm25")


def append_until_crash(folder: Path, model: LoadedModel, operations: int) -> bool:
    """Whether the process died at this disk operation."""
    with pytest.MonkeyPatch.context() as patch:
        die_after(patch, operations)
        try:
            build(folder, model, [f"the film number {n}" for n in range(6)], append=True)
        except Crash:
            return True
    return False


def test_an_append_that_dies_leaves_the_old_index(tmp_path: Path, model: LoadedModel) -> None:
    folder = tmp_path / "index"
    build(folder, model)
    before, operations = open_index(folder).manifest, 0
    while append_until_crash(folder, model, operations):
        index = open_index(folder)
        index.verify()
        assert index.manifest == before
        assert found(index, "a bad day", 1) == ["a bad day"]
        operations += 2
    assert operations > 20
    index = open_index(folder)
    assert len(index) == len(TEXTS) + 6
    index.delete([0])  # the next change removes what the killed runs left
    present = sorted(name for name in os.listdir(folder) if not name.startswith("."))  # temporary files of this process
    assert present == [index.manifest.deleted[0], "regard.json", "segments"]  # type: ignore[index]
    assert sorted(os.listdir(folder / "segments")) == [one.name for one in index.manifest.segments]


KILLED = """
import sys
from pathlib import Path
from regard.events import Event, Progress, drain
from regard.inference.load_model import load_model
from regard.inference.search.documents import IndexedText
from regard.inference.search.build import add_documents
from tests.crashes import kill_after

documents = [IndexedText(0, row, f"the film number {row}") for row in range(6)]
load = lambda name: load_model(sys.argv[2])
kill_after(int(sys.argv[3]))
drain(add_documents(Path(sys.argv[1]), lambda: documents, load, append=True))
"""


def test_a_killed_process_leaves_the_old_index(tmp_path: Path, model: LoadedModel, tiny_bert_folder: Path) -> None:
    folder = tmp_path / "index"
    before = build(folder, model).manifest
    command = [sys.executable, "-c", KILLED, str(folder), str(tiny_bert_folder), "12"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    index = open_index(folder)
    assert index.manifest == before and (folder / "adding").is_dir()
    index.verify()
    index = build(folder, model, [f"the film number {row}" for row in range(6)], append=True)
    assert len(index) == len(TEXTS) + 6 and not (folder / "adding").exists()
