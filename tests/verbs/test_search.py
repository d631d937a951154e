"""The verbs of search on files: a messy table, an index, queries from a file, a reranker."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

import regard
from regard.cli.app import run
from regard.errors import InputError
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned, predict, save_fine_tuned
from regard.tasks.regression import Regression
from regard.tasks.text_classification import PairClassification

# A byte order mark, CR LF, semicolons, quotes, a line break in a cell, emoji, blank rows and a missing text.
MESSY = (
    "\ufeffid;review;date\r\n"
    'a7;"the film was ""good""";2024-01-02\r\n'
    'b1;"a bad day;\r\nand more";2024-01-03\r\n'
    "c9;;2024-01-04\r\n"
    "\r\n"
    "d2;the water is hot 😀;\r\n"
    "e5;the film was good;2024-01-06\r\n"
)


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "messy.csv"
    path.write_bytes(MESSY.encode())
    return path


def command(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    status = run([*map(str, words), "--json"])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    document: dict[str, object] = json.loads(captured.out)
    return document


def test_a_messy_table(messy: Path, tiny_bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "index"
    options = ["--model", tiny_bert_folder, "--keep", "date", "--id", "id"]
    assert run(["index", str(messy), "--output", str(folder), *map(str, options)]) == 0
    captured = capsys.readouterr()
    assert "4 texts" in captured.out and "2 rows without a text" in captured.err
    (result,) = command(capsys, "search", folder, "the film was good", "--top", 4)["results"]  # type: ignore[misc]
    hits = {hit["id"]: hit for hit in result["hits"]}
    assert result["hits"][0]["id"] == "e5" and result["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert {name: hit["row"] for name, hit in hits.items()} == {"a7": 0, "b1": 1, "d2": 4, "e5": 5}
    assert hits["a7"]["text"] == 'the film was "good"' and hits["b1"]["text"] == "a bad day;\nand more"
    assert hits["e5"]["columns"] == {"date": "2024-01-06"} and hits["d2"]["text"].endswith("😀")
    with pytest.raises(InputError, match=r"--keep is for a table, and .*index is an index"):
        regard.search(folder, "film", keep=["date"])
    assert run(["index", str(messy), "--output", str(folder), "--append", "--pooling", "max"]) == 2
    assert "embedded as those of the index" in capsys.readouterr().err
    with pytest.raises(InputError, match="row 0 has the id 'a7', which row 0 has already"):
        regard.open_index(folder).add(messy)
    index = regard.open_index(folder)
    more = messy.with_name("more.csv")
    more.write_text("id,review,date\nz1,they love the water,2025\n")
    assert index.add(more) == 1 and len(index) == 5
    hit = index.search("they love the water", top=1).results[0].hits[0]
    assert (hit.id, hit.row, hit.columns) == ("z1", 6, {"date": "2025"})
    assert index.delete(["z1"]) == 1


def test_rows_without_a_text_can_be_refused(messy: Path, tiny_bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no text"):
        regard.index(messy, tmp_path / "index", model=tiny_bert_folder, missing="error")


def test_queries_from_a_file(tiny_bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, queries = tmp_path / "texts.txt", tmp_path / "queries.txt"
    texts.write_text("the film was good\na bad day\nthe water is hot\n")
    queries.write_text("a bad day\n\nhot water\n")
    model = ["--model", tiny_bert_folder]
    found = command(capsys, "search", texts, "film", "--queries", queries, *model, "--method", "bm25", "-k", 1)
    assert [one["query"] for one in found["results"]] == ["film", "a bad day", "hot water"]  # type: ignore[attr-defined]
    assert [one["hits"][0]["row"] for one in found["results"]] == [0, 1, 2]  # type: ignore[attr-defined]
    assert run(["search", str(texts), "film", *map(str, model), "--output", str(tmp_path / "hits.csv")]) == 0
    with open(tmp_path / "hits.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == ["1", "2", "3"] and rows[0]["query"] == "film"
    assert run(["search", str(texts), *map(str, model)]) == 2
    assert "there is no query" in capsys.readouterr().err


def test_python(tiny_bert_folder: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": [10, 20, 30], "text": ["the film was good", "a bad day", "a dull film"]})
    index = regard.index(frame, model=tiny_bert_folder, columns="text", keep="all", id="key")
    assert len(index) == 3
    result = index.search(["a bad day", "film"], top=2)
    first = result.results[0].hits[0]
    assert (first.id, first.row, first.text) == (20, 1, "a bad day")
    assert list(result.to_pandas().columns) == ["query", "rank", "score", "id", "row", "text"]
    index.save(tmp_path / "saved")
    again = regard.open_index(tmp_path / "saved")
    assert again.search("a bad day", 1).results[0].hits[0].id == 20
    assert len(again.duplicates(1.0).groups) == 0 and again.cluster(2).num_clusters == 2
    assert len(regard.index(["one text"], model=regard.load(tiny_bert_folder))) == 1
    saved = regard.search(str(tmp_path / "saved"), "a bad day", top=1)
    assert saved.results[0].hits[0].id == 20


def test_a_data_frame_is_never_its_column_names(tiny_bert_folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": [1, 2, 3], "text": ["the film was good", "a bad day", "a dull film"]})
    clusters = regard.cluster(frame, model=tiny_bert_folder, num_clusters=2, keep=["key"])
    assert [(one.text, one.columns["key"]) for one in clusters.members] == list(zip(frame.text, frame.key, strict=True))
    for texts in (frame, frame[["text"]], frame["text"], frame["text"].to_numpy()):
        assert regard.search(texts, "a bad day", model=tiny_bert_folder, top=1).results[0].hits[0].row == 1


def test_clusters_have_a_row_for_every_row(
    messy: Path, tiny_bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "clusters.csv"
    options = ["--model", str(tiny_bert_folder), "--keep", "all", "--output", str(output)]
    assert run(["cluster", str(messy), "--num-clusters", "2", *options]) == 0
    with open(output, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert [row["cluster"] in ("0", "1") for row in rows] == [True, True, False, False, True, True]
    assert (
        rows[5]["date"] == "2024-01-06"
        and (rows[2]["id"], rows[2]["input_id"]) == ("2", "c9")
        and rows[2]["text"] == ""
    )
    assert run(["cluster", str(messy), "-n", "2", *options[:4], "--output", str(output.with_suffix(".jsonl"))]) == 0
    lines = [json.loads(line) for line in output.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in lines] == list(range(6)) and lines[2]["cluster"] is None
    capsys.readouterr()
    duplicates = command(capsys, "duplicates", messy, "--model", tiny_bert_folder, "--threshold", 0.999)
    assert duplicates["groups"] == []


@pytest.mark.parametrize("task", ["pair", "regress"])
def test_a_reranker_sorts_the_candidates(tiny_bert_folder: Path, tmp_path: Path, task: str) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    kind = PairClassification(["0", "1"], positive_label="1") if task == "pair" else Regression(0.0, 1.0)
    model = FineTunedModel(kind, EncoderWithHead.from_encoder(encoder, kind).eval(), tokenizer, 64)
    save_fine_tuned(model, tmp_path / "reranker")
    texts = ["the film was good", "a bad day", "the water is hot", "they love it", "people call him"]
    index = regard.index(texts, model=tiny_bert_folder)
    result = index.search("a film", top=3, rerank=tmp_path / "reranker", rerank_top=4)
    candidates = [hit.text for hit in index.search("a film", top=4).results[0].hits]
    loaded = load_fine_tuned(tmp_path / "reranker")
    predictions = predict(loaded, [kind.example("a film", text) for text in candidates], device=torch.device("cpu"))
    scores = [one["value"] if task == "regress" else one["probabilities"]["1"] for one in predictions]
    expected = sorted(zip(scores, candidates, strict=True), reverse=True)[:3]
    assert [hit.text for hit in result.results[0].hits] == [text for _, text in expected]
    assert [hit.score for hit in result.results[0].hits] == pytest.approx([score for score, _ in expected], rel=1e-4)


def test_a_model_for_something_else_cannot_rerank(tiny_bert_folder: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    kind = PairClassification(["a", "b", "c"])
    model = FineTunedModel(kind, EncoderWithHead.from_encoder(encoder, kind), tokenizer, 64)
    index = regard.index(["the film"], model=tiny_bert_folder)
    with pytest.raises(InputError, match="pair with 3 classes cannot rerank"):
        index.search("film", rerank=model)
