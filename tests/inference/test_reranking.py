"""Reranking equals sentence-transformers' CrossEncoder, and what Regard does not follow is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard.cli.app import run
from regard.errors import InputError, RegardError
from regard.events import drain
from regard.inference.reranking import Reranker
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned
from regard.tasks.text_classification import PairClassification
from tests.parity.published import LONG, SENTENCES, publish

sentence_transformers = pytest.importorskip("sentence_transformers")

QUERY = "is the film good?"
TEXTS = [*SENTENCES, LONG, "", "the day " * 9, QUERY]


def scores(folder: Path, query: str = QUERY, texts: list[str] = TEXTS) -> list[float]:
    found = drain(Reranker(load_fine_tuned(folder)).steps(query, texts))
    return [one.score for one in found]


def rewrite(path: Path, **values: object) -> None:
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**document, **values}), encoding="utf-8")


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "modernbert", "deberta-v2", "bart", "gpt2"])
def test_the_ranks_are_those_of_cross_encoder(family: str, tmp_path: Path) -> None:
    publish(family, "SequenceClassification", tmp_path, labels=1)
    model = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    # An empty pair has no token in GPT-2's tokenizer, so its query is not empty.
    for query in (QUERY, LONG):
        expected = model.rank(query, TEXTS, batch_size=3)
        found = regard.rerank(query, TEXTS, model=tmp_path)
        scored = {one.row: one.score for one in found.results}
        blank = TEXTS.index("")
        assert scored.pop(blank) is None and found.results[-1].row == blank and found.blank == 1
        assert scored == pytest.approx(
            {one["corpus_id"]: one["score"] for one in expected if one["corpus_id"] != blank}, abs=1e-5
        )
        assert scores(tmp_path, query) == pytest.approx(model.predict([(query, text) for text in TEXTS]), abs=1e-5)
        logits = [one.logit for one in found.results if one.logit is not None]
        assert logits == sorted(logits, reverse=True)


@pytest.mark.parametrize("saved", [False, True], ids=["as transformers saves", "as sentence-transformers saves"])
@pytest.mark.parametrize("activation", [nn.Sigmoid(), nn.Identity(), nn.Tanh(), nn.Softplus()], ids=repr)
def test_activation_prompt_and_length(tmp_path: Path, activation: nn.Module, saved: bool) -> None:
    publish("bert", "SequenceClassification", tmp_path / "old", labels=1)
    options: dict[str, Any] = {"activation_fn": activation}
    folder = tmp_path / "old"
    if saved:
        options |= {
            "prompts": {"query": "a good day. ", "other": "no "},
            "default_prompt_name": "query",
            "max_length": 15,
        }
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu", **options)
    if saved:
        folder = tmp_path / "new"
        model.save_pretrained(str(folder))
    else:
        name = f"{type(activation).__module__}.{type(activation).__name__}"
        rewrite(folder / "config.json", sentence_transformers={"activation_fn": name, "version": "4.1.0"})
        model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    assert repr(model.activation_fn) == repr(activation)
    expected = model.predict([(QUERY, text) for text in TEXTS])
    assert scores(folder) == pytest.approx(expected, abs=1e-5)
    assert expected.std() > 1e-3  # not all the same
    load_fine_tuned(folder).save(tmp_path / "again")
    assert scores(tmp_path / "again") == pytest.approx(expected, abs=1e-5)


def test_older_keys_and_lengths_of_the_module(tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=1)
    rewrite(tmp_path / "config.json", sbert_ce_default_activation_function="torch.nn.modules.linear.Identity")
    model = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    expected = model.predict([(QUERY, text) for text in TEXTS])
    assert scores(tmp_path) == pytest.approx(expected, abs=1e-5)
    (predicted,) = regard.predict(str(tmp_path), [(QUERY, TEXTS[0])]).to_dict()["predictions"]
    assert predicted["score"] == pytest.approx(expected[0], abs=1e-5)


@pytest.mark.parametrize(
    ("file", "values", "error"),
    [
        ("config.json", {"sentence_transformers": {"activation_fn": "os.system"}}, "os.system"),
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.Softshrink"}}, "softshrink"),
        ("config.json", {"sentence_transformers": {"instruction": "x"}}, "instruction is 'x'"),
        ("config_sentence_transformers.json", {"query_template": "q"}, "query_template is 'q'"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name is 'query'"),
        ("sentence_bert_config.json", {"transformer_task": "text-generation"}, "transformer_task is"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "max_seq_length is 'long'"),
        ("modules.json", [{"type": "a.Transformer"}, {"type": "a.Dense"}], r"a\.Transformer, a\.Dense"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(tmp_path: Path, file: str, values: Any, error: str) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=1)
    rewrite(tmp_path / "config_sentence_transformers.json", model_type="CrossEncoder")
    if isinstance(values, list):
        (tmp_path / file).write_text(json.dumps(values), encoding="utf-8")
    else:
        rewrite(tmp_path / file, **values)
    with pytest.raises(InputError, match=error):
        regard.rerank(QUERY, ["a text"], model=tmp_path)


def test_two_classes_need_a_name_and_seven_are_refused(tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path / "unnamed", labels=2)
    with pytest.raises(InputError, match="nothing tells which"):
        regard.rerank(QUERY, ["a text"], model=tmp_path / "unnamed")
    publish("bert", "SequenceClassification", tmp_path / "seven", labels=7)
    with pytest.raises(InputError, match="7 classes cannot rerank"):
        regard.rerank(QUERY, ["a text"], model=tmp_path / "seven")
    publish("bert", "SequenceClassification", tmp_path / "named", labels=["entailment", "not_entailment"])
    model = sentence_transformers.CrossEncoder(str(tmp_path / "named"), device="cpu")
    expected = model.predict([(QUERY, text) for text in TEXTS], apply_softmax=True)[:, 0]
    assert scores(tmp_path / "named") == pytest.approx(expected, abs=1e-5)


def test_damaged_weights_are_an_error(tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=1)
    model = load_fine_tuned(tmp_path)
    with torch.no_grad():
        model.model.encoder.embedding.tokens.weight.fill_(float("nan"))
    with pytest.raises(RegardError, match="NaN"):
        drain(Reranker(model).steps(QUERY, ["a"]))


def test_search_orders_by_a_published_reranker(tmp_path: Path, tiny_bert_folder: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=1)
    texts = [text for text in TEXTS if text]
    index = regard.index(texts, model=tiny_bert_folder)
    hits = index.search(QUERY, top=3, rerank=tmp_path, rerank_top=len(texts)).results[0].hits
    expected = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu").rank(QUERY, texts, top_k=3)
    assert [hit.row for hit in hits] == [one["corpus_id"] for one in expected]
    assert [hit.score for hit in hits] == pytest.approx([one["score"] for one in expected], abs=1e-5)


def test_int8_keeps_the_order(tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=1)
    texts = [text for text in TEXTS if text]
    exact = {one.row: one.logit for one in regard.rerank(QUERY, texts, model=tmp_path).results}
    found = {one.row: one.logit for one in regard.rerank(QUERY, texts, model=tmp_path, precision="int8").results}
    assert found == pytest.approx(exact, abs=0.1) and found != exact


def test_a_table_in_and_ranked_rows_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish("bert", "SequenceClassification", tmp_path / "model", labels=1)
    table = tmp_path / "reviews.csv"
    table.write_text(
        'id,review\na,"a bad day, sir"\nb,\nc,the film is good\nd,日本 ü\n' + f'e,"{LONG}"\n', encoding="utf-8"
    )
    command = ["rerank", QUERY, str(table), "--columns", "review", "--model", str(tmp_path / "model"), "--keep", "id"]
    assert run([*command, "--json"]) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert [one["rank"] for one in document["results"]] == [1, 2, 3, 4, 5]
    assert document["results"][-1]["columns"] == {"id": "b"} and document["results"][-1]["score"] is None
    assert document["truncated"] >= 1 and "1 row without a text" in output.err and "cut" in output.err
    rows = [one["row"] for one in document["results"]]
    assert run([*command, "--top", "2", "--missing", "skip", "--output", str(tmp_path / "out.csv")]) == 0
    lines = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "rank,row,score,logit,text,id" and [int(line.split(",")[1]) for line in lines[1:3]] == rows[:2]
    assert run(["rerank", " ", str(table), "--model", str(tmp_path / "model")]) == 2
    assert run([*command[:-1], "idd"]) == 2
    assert "id" in capsys.readouterr().err


def test_a_model_of_a_regard_training_needs_no_names(tiny_bert_folder: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = PairClassification(["a", "b"], positive_label="a")
    model = FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)
    found = regard.rerank("a film", ["the film", "a day"], model=model)
    expected = regard.predict(model, [("a film", "the film"), ("a film", "a day")]).predictions
    assert {one.row: one.score for one in found.results} == pytest.approx(
        {one["row"]: one["probabilities"]["a"] for one in expected}, abs=1e-5
    )
