"""`embed_file` as a library call: the written file, input validation, and resuming after a crash."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from regard import Embedder
from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.inference.bulk.job import BulkProgress
from regard.inference.bulk.shards import ShardFolder
from regard.inference.embedding import bulk
from regard.inference.embedding.engine import EmbeddingEngine
from tests.inference.measure import embed_file

TEXTS = [f"the {word} film was {'so ' * (number % 7)}long" for number, word in enumerate(["good", "dull", "hot"] * 10)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def expected(tiny_bert_folder: Path) -> np.ndarray[Any, Any]:
    found = Embedder(tiny_bert_folder).transform(TEXTS)
    assert isinstance(found, np.ndarray)
    return found


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"texts.txt"}


@pytest.mark.parametrize("shard_size", [1, 7, 30, 1000])
def test_rows_are_the_texts_in_order(
    shard_size: int, file: Path, expected: np.ndarray[Any, Any], tiny_bert_folder: Path, tmp_path: Path
) -> None:
    reports: list[BulkProgress] = []
    result = embed_file(
        file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=shard_size, on_progress=reports.append
    )
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)
    assert (result.rows, result.width, result.pooling, result.max_length) == (30, 32, "mean", 128)
    assert (result.cut, result.windowed, result.missing, result.resumed) == (0, 0, 0, 0)
    assert result.texts_per_second == pytest.approx(30 / result.seconds)
    assert leftovers(tmp_path) == {"out.npy", "out.npy.regard.json"}
    done = [progress.done for progress in reports]
    assert (done[0], done[-1]) == (0, 30)
    assert done == sorted(done)
    assert {(progress.total, progress.resumed) for progress in reports} == {(30, 0)}


def test_all_settings_reach_the_engine(file: Path, tiny_bert_folder: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"layers": "concat(1:)", "pooling": "max", "normalize": True, "max_length": 6}
    result = embed_file(file, tmp_path / "out.npz", model=tiny_bert_folder, **settings)
    with np.load(tmp_path / "out.npz") as found:
        expected = Embedder(tiny_bert_folder, **settings).transform(TEXTS)
        np.testing.assert_allclose(found["vectors"], expected, atol=1e-6)
        assert list(found["lines"]) == list(range(1, 31))
    assert (result.width, result.max_length) == (64, 6)
    assert result.cut == sum(len(text.split()) > 4 for text in TEXTS)


def test_settings_of_a_sentence_transformers_folder_are_the_default(
    file: Path, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert_folder, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}), encoding="utf-8")
    assert embed_file(file, tmp_path / "out.npy", model=folder).pooling == "cls"
    assert embed_file(file, tmp_path / "max.npy", model=folder, pooling="max").pooling == "max"


@pytest.mark.parametrize("characters", [20, 5])  # several blocks a shard; at 5 the blank line is a block of its own
def test_token_vectors_with_blanks(
    characters: int, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "FLOATS", 32 * characters)
    texts = ["the Film", "", "zebra!", "dull"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    options: dict[str, Any] = {"model": tiny_bert_folder, "pooling": "none"}
    embed_file(tmp_path / "in.txt", tmp_path / "out.parquet", **options)
    embed_file(tmp_path / "in.txt", tmp_path / "out.npz", **options)
    expected = Embedder(tiny_bert_folder, pooling="none").transform(["the Film", "zebra!", "dull"])
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    arrays = np.load(tmp_path / "out.npz")
    assert [row["line"] for row in table] == list(arrays["lines"]) == [1, 2, 3, 4]
    assert table[1]["tokens"] == table[1]["vectors"] == []
    assert arrays["starts"][1] == arrays["starts"][2]
    for index, one in zip((0, 2, 3), expected, strict=True):
        row, part = table[index], slice(arrays["starts"][index], arrays["starts"][index + 1])
        assert row["tokens"] == one.tokens
        assert row["words"] == list(arrays["words"][part]) == list(one.words)
        assert list(zip(row["starts"], row["ends"], strict=True)) == [tuple(pair) for pair in one.offsets]
        np.testing.assert_array_equal(arrays["offsets"][part], one.offsets)
        # Batches differ here, and kernels differ between CPUs: 1.6e-6 was measured. docs/reliability.md promises 1e-5.
        np.testing.assert_allclose(row["vectors"], one.vectors, atol=1e-5)
        np.testing.assert_allclose(arrays["vectors"][part], one.vectors, atol=1e-5)
    assert "zebra!"[table[2]["starts"][1] : table[2]["ends"][1]] == "z"


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("shard_size", [1, 4096])  # at 1 some shards contain only blanks
def test_blanks_as_zeros_and_skipped(shard_size: int, suffix: str, tiny_bert_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("dull\n\n \nlove\n", encoding="utf-8")
    expected = Embedder(tiny_bert_folder).transform(["dull", "love"])

    def embedded(missing: Any) -> tuple[Any, Any]:
        output = tmp_path / f"{missing}{suffix}"
        options = TableOptions(missing=missing)
        result = embed_file(tmp_path / "in.txt", output, model=tiny_bert_folder, table=options, shard_size=shard_size)
        assert result.missing == 2
        if suffix == ".npy":
            return np.load(result.output), None
        table = pq.read_table(result.output)
        vectors = [[0.0] * 32 if vector is None else vector for vector in table["vector"].to_pylist()]
        assert table["vector"].null_count == (2 if missing == "keep" else 0)
        return np.array(vectors, dtype=np.float32), table["line"].to_pylist()

    vectors, lines = embedded("keep")
    np.testing.assert_allclose(vectors[[0, 3]], expected, atol=1e-6)
    assert not vectors[1:3].any()
    assert lines in (None, [1, 2, 3, 4])
    vectors, lines = embedded("skip")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert lines in (None, [1, 4])


def test_groups_limit_memory(
    file: Path, expected: np.ndarray[Any, Any], tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    steps = EmbeddingEngine.embed_steps

    def spy(self: EmbeddingEngine, texts: list[str], vectors: Any) -> Any:
        sizes.append(sum(map(len, texts)))
        return steps(self, texts, vectors)

    monkeypatch.setattr(EmbeddingEngine, "embed_steps", spy)
    monkeypatch.setattr(bulk, "CHARACTERS", 100)
    embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=20)
    assert len(sizes) > 2
    assert max(sizes) <= 100
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)


def test_windows(tiny_bert_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("dull\n" + "the film was long " * 50 + "\n", encoding="utf-8")
    result = embed_file(tmp_path / "in.txt", tmp_path / "out.npy", model=tiny_bert_folder, long="windows")
    assert (result.cut, result.windowed) == (0, 1)


def test_a_long_text_is_an_error_with_its_line_number_before_any_work(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddingEngine, "embed_steps", lambda *_, **__: pytest.fail("work was done before the check"))
    (tmp_path / "in.txt").write_text("dull\n\nlove\nthe film was so long\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"in\.txt line 4 .*has 2 tokens more than the 5 that fit"):
        embed_file(tmp_path / "in.txt", tmp_path / "o.npy", model=tiny_bert_folder, max_length=5, long="error")
    assert leftovers(tmp_path) == {"in.txt"}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("out.npy", {"layers": "sum(1"}, "unknown layer expression"),
        ("out.npy", {"pooling": "avg"}, "unknown pooling 'avg'"),
        ("out.npy", {"pooling": "none"}, "use .npz or .parquet"),
        ("out.npy", {"model": "no/such/folder"}, "no such folder"),
        ("out.npy", {"max_length": 200}, "only 128 positions"),
        ("out.npy", {"device": "tpu"}, "unknown device 'tpu'"),
        ("out.npy", {"shard_size": 0}, "at least 1"),
        ("out.npy", {"table": TableOptions(missing="drop")}, "unknown way with missing"),  # type: ignore[arg-type]
        ("out.npy", {"table": TableOptions(columns=("x",))}, "no column 'x'"),
        ("out.txt", {}, "choices: .npy, .npz, .parquet"),
        ("absent/out.npy", {}, "create it first"),
    ],
)
def test_invalid_arguments_are_found_before_any_work(
    name: str, changes: dict[str, Any], message: str, file: Path, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        embed_file(file, tmp_path / name, **({"model": tiny_bert_folder} | changes))
    assert leftovers(tmp_path) == set()


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_folder_with_a_missing_file(missing: str, file: Path, tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert_folder, folder)
    (folder / missing).unlink()
    with pytest.raises(InputError, match=missing.replace(".", r"\.")):
        embed_file(file, tmp_path / "out.npy", model=folder)
    assert leftovers(tmp_path) == {"model"}


class Crash(BaseException):
    pass


def crash_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the job stop in the middle of a shard."""
    add = ShardFolder.add

    def stopping(self: ShardFolder, shard: int, block: Any) -> None:
        add(self, shard, block)
        if shard == number:
            raise Crash

    monkeypatch.setattr(ShardFolder, "add", stopping)


def test_resuming_after_a_crash(
    file: Path, expected: np.ndarray[Any, Any], tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, partial = tmp_path / "out.npy", tmp_path / "out.npy.partial"
    output.write_bytes(b"old")
    options: dict[str, Any] = {"model": tiny_bert_folder, "shard_size": 4, "max_length": 8, "force": True}
    with monkeypatch.context() as patch:
        crash_at(5, patch)
        with pytest.raises(Crash):
            embed_file(file, output, **options)
    assert output.read_bytes() == b"old"
    assert {path.name for path in partial.glob("*.npz")} == {f"{n:06d}.npz" for n in range(5)}

    with pytest.raises(InputError, match="max_length was 8 and is 128"):
        embed_file(file, output, **{**options, "max_length": None})
    file.write_text("\n".join([*TEXTS, "more"]), encoding="utf-8")
    with pytest.raises(InputError, match="the input changed"):
        embed_file(file, output, **options)
    file.write_text("\n".join(TEXTS), encoding="utf-8")

    embedded: list[str] = []
    pooled = EmbeddingEngine.embed_steps
    monkeypatch.setattr(
        EmbeddingEngine,
        "embed_steps",
        lambda self, texts, vectors: embedded.extend(texts) or pooled(self, texts, vectors),
    )
    reports: list[BulkProgress] = []
    result = embed_file(file, output, on_progress=reports.append, **options)
    assert embedded == TEXTS[20:]
    assert (result.resumed, reports[0].done, reports[-1].done, reports[0].resumed) == (20, 0, 10, 20)
    assert result.cut == sum(len(text.split()) > 6 for text in TEXTS)  # those of the first run are counted too
    cut = Embedder(tiny_bert_folder, max_length=8).transform(TEXTS)
    np.testing.assert_allclose(np.load(output), cut, atol=1e-6)
    assert leftovers(tmp_path) == {"out.npy", "out.npy.regard.json"}


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records every text that the engine embeds."""
    found: list[str] = []
    for method in ("embed_steps", "embed_tokens"):
        original = getattr(EmbeddingEngine, method)

        def spy(self: EmbeddingEngine, texts: list[str], *more: Any, original: Any = original) -> Any:
            found.extend(texts)
            return original(self, texts, *more)

        monkeypatch.setattr(EmbeddingEngine, method, spy)
    return found


@pytest.mark.parametrize(("suffix", "pooling"), [(".npy", "mean"), (".npz", "none"), (".parquet", "max")])
def test_a_finished_run_is_not_repeated(
    suffix: str, pooling: str, file: Path, tiny_bert_folder: Path, tmp_path: Path, embedded: list[str]
) -> None:
    output = tmp_path / f"out{suffix}"
    options: dict[str, Any] = {"model": tiny_bert_folder, "pooling": pooling, "max_length": 8, "shard_size": 7}
    first = embed_file(file, output, **options)
    assert len(embedded) == 30 and first.cut > 0
    embedded.clear()
    state = output.stat()
    again = embed_file(file, output, **options)
    assert embedded == [] and again.already_done and not first.already_done
    assert (output.stat().st_ino, output.stat().st_mtime_ns) == (state.st_ino, state.st_mtime_ns)
    assert again.resumed == again.rows == 30 and again.texts_per_second == 0
    names = ("output", "rows", "width", "pooling", "max_length", "cut", "windowed", "missing")
    assert [getattr(again, name) for name in names] == [getattr(first, name) for name in names]
    assert leftovers(tmp_path) == {output.name, f"{output.name}.regard.json"}
    assert not embed_file(file, output, restart=True, **options).already_done
    assert len(embedded) == 30


@pytest.mark.parametrize("change", ["settings", "texts", "model", "output", "cut output", "no output"])
def test_a_finished_output_is_not_replaced_if_something_changed(
    change: str, file: Path, tiny_bert_folder: Path, tmp_path: Path, embedded: list[str]
) -> None:
    """That of another job needs `restart`, one that was damaged or edited `force`; a missing one is written again."""
    output, folder = tmp_path / "out.npy", tmp_path / "model"
    shutil.copytree(tiny_bert_folder, folder)
    embed_file(file, output, model=folder)
    good = output.read_bytes()
    embedded.clear()
    options: dict[str, Any] = {"layers": 0} if change == "settings" else {}
    if change == "texts":
        file.write_text("\n".join([*TEXTS[:-1], "other"]), encoding="utf-8")
    elif change == "model":
        content = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(content))
        (folder / "checksums.json").unlink(missing_ok=True)
    elif change == "output":
        output.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    elif change == "cut output":
        output.write_bytes(good[:-4])
    elif change == "no output":
        output.unlink()
    remedy = "force" if change.endswith("output") else "restart"
    if change != "no output":
        before = output.read_bytes()
        with pytest.raises(InputError, match=rf"{output}.*--{remedy}"):
            embed_file(file, output, model=folder, **options)
        assert output.read_bytes() == before and embedded == []
        assert leftovers(tmp_path) == {"out.npy", "out.npy.regard.json", "model"}
        options[remedy] = True
    result = embed_file(file, output, model=folder, **options)
    assert len(embedded) == 30 and not result.already_done and result.resumed == 0
    assert (output.read_bytes() == good) == (change not in ("settings", "texts"))
    options = {"layers": 0} if change == "settings" else {}
    assert embed_file(file, output, model=folder, **options).already_done


def test_a_damaged_record_is_reported(file: Path, tiny_bert_folder: Path, tmp_path: Path, embedded: list[str]) -> None:
    """Nobody knows then who wrote the output."""
    output, record = tmp_path / "out.npy", tmp_path / "out.npy.regard.json"
    embed_file(file, output, model=tiny_bert_folder)
    good, data = record.read_bytes(), output.read_bytes()
    for content in (good.replace(b'"long": 0', b'"long": 1'), good[:50], b""):
        embedded.clear()
        record.write_bytes(content)
        with pytest.raises(InputError, match=rf"{record}.*--force"):
            embed_file(file, output, model=tiny_bert_folder)
        assert embedded == []
        embed_file(file, output, model=tiny_bert_folder, force=True)
        assert len(embedded) == 30 and (record.read_bytes(), output.read_bytes()) == (good, data)


@pytest.mark.parametrize("damage", ["flip", "cut", "name"])
def test_a_damaged_shard_is_reported_and_embedded_again(
    damage: str,
    file: Path,
    tiny_bert_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    embedded: list[str],
) -> None:
    embed_file(file, tmp_path / "complete.npy", model=tiny_bert_folder, shard_size=4)
    with monkeypatch.context() as patch:
        crash_at(5, patch)
        with pytest.raises(Crash):
            embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=4)
    shard = tmp_path / "out.npy.partial" / "000002.npz"
    content = bytearray(shard.read_bytes())
    if damage == "flip":
        content[len(content) // 3] ^= 1
    elif damage == "cut":
        del content[-30:]
    else:  # of a member in the archive's directory: the shard then looks empty
        content[content.rindex(b"0.lines")] ^= 1
    shard.write_bytes(content)
    embedded.clear()
    damaged: list[str] = []
    result = embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=4, on_damaged=damaged.append)
    assert [str(shard) in what for what in damaged] == [True]
    assert embedded == TEXTS[8:12] + TEXTS[20:] and result.resumed == 16
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "complete.npy").read_bytes()


def test_restart_discards_earlier_work(
    file: Path, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        crash_at(2, patch)
        with pytest.raises(Crash):
            embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=4)
    result = embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=9, layers=0, restart=True)
    assert result.resumed == 0
    np.testing.assert_allclose(np.load(result.output), Embedder(tiny_bert_folder, layers=0).transform(TEXTS), atol=1e-6)


def test_an_input_that_changes_during_the_run_leaves_no_output(
    file: Path, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    def change(progress: BulkProgress) -> None:
        if progress.done == 0:
            file.write_text("other\n" * 30, encoding="utf-8")

    with pytest.raises(InputError, match="was changed while it was read"):
        embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=4, on_progress=change)
    assert leftovers(tmp_path) == set()
