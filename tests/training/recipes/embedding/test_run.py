"""Complete runs: learning, files that sentence-transformers loads, and bit-identical results after interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError
from regard.events import drain
from regard.inference.embedding.engine import load_engine
from regard.training.recipes.embedding import objective as trainer
from regard.training.recipes.embedding.config import EmbeddingConfig
from regard.training.recipes.embedding.data import TextRows, tokenize
from regard.training.recipes.embedding.recipe import EmbeddingReport, retrieval_scores, train_embedder

WORDS = ["film", "day", "water", "dog", "cat", "house", "good", "bad", "they", "love"]
ANCHORS = [f"the {first} of {second}" for first in WORDS for second in WORDS[:4]]
POSITIVES = [f"a {second} has the {first}" for first in WORDS for second in WORDS[:4]]
PAIRS = TextRows((ANCHORS, POSITIVES), path="pairs")
TEXTS = TextRows((ANCHORS + POSITIVES,), path="texts")
SCORED = TextRows((ANCHORS, POSITIVES[::-1]), scores=[len(text) / 7 for text in ANCHORS], path="scored")
QUICK = ("training.num_epochs=2", "training.batch_size=16", "training.learning_rate=2e-3", "model.dropout=0.0")
Train = Callable[..., EmbeddingReport]


class Crash(BaseException):
    """Stands for a power failure."""


@pytest.fixture
def run(tiny_bert_folder: Path) -> Train:
    def run(output: Path, data: TextRows = PAIRS, *settings: str, on_event: Any = None, **options: Any) -> Any:
        config = EmbeddingConfig.load(overrides=[*QUICK, *settings])
        options = {"model": tiny_bert_folder, "device": "cpu", **options}
        return drain(train_embedder(data, output=output, config=config, **options), on_event)

    return run


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_pairs_are_found_after_training(run: Train, tmp_path: Path, tiny_bert_folder: Path) -> None:
    report = run(tmp_path / "run", PAIRS, "training.num_epochs=12", dev=PAIRS)
    before = retrieval_scores(regard.Embedder(tiny_bert_folder, normalize=True).transform, ANCHORS, POSITIVES)
    assert report.outcome.scores["recall@1"] > before["recall@1"] + 30
    found = retrieval_scores(regard.Embedder(tmp_path / "run").transform, ANCHORS, POSITIVES)
    assert found == pytest.approx(report.outcome.scores)
    assert len(report.outcome.history) == 12 and report.objective == "in-batch negatives"
    best = max(scores["recall@1"] for scores in report.outcome.history)
    assert report.outcome.scores["recall@1"] == best


@pytest.mark.parametrize("normalize", ["true", "false"])
def test_sentence_transformers_computes_the_same_vectors(normalize: str, run: Train, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    run(tmp_path / "run", PAIRS, f"model.normalize={normalize}", "model.max_length=24", "training.max_steps=1")
    texts = [*ANCHORS[:5], "a", "they love it " * 20]
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "run"), device="cpu")
    assert peer.max_seq_length == 24
    vectors = regard.Embedder(tmp_path / "run", device="cpu").transform(texts)
    np.testing.assert_allclose(vectors, peer.encode(texts), atol=1e-5)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1) == (normalize == "true")
    module = peer[0].auto_model
    assert type(module).__name__ == "BertModel" and module.pooler is not None


def test_the_pooling_and_the_prompts_of_the_start_model_are_kept(
    run: Train, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    start = shutil.copytree(tiny_bert_folder, tmp_path / "start")
    pooling, settings = start / "1_Pooling" / "config.json", start / "config_sentence_transformers.json"
    pooling.parent.mkdir()
    pooling.write_text(json.dumps({"pooling_mode": "cls"}))
    settings.write_text(json.dumps({"prompts": {"query": "they "}}))
    report = run(tmp_path / "run", PAIRS, "training.num_epochs=1", dev=PAIRS, model=start)
    engine = load_engine(tmp_path / "run", device="cpu")
    assert engine.pooling == "cls" and engine.settings.prompts == {"query": "they "}
    found = retrieval_scores(engine.embed, ANCHORS, POSITIVES)
    assert found == pytest.approx(report.outcome.scores)
    before = retrieval_scores(regard.Embedder(start, normalize=True).transform, ANCHORS, POSITIVES)
    assert report.start == pytest.approx(before)


@pytest.mark.parametrize(
    ("pooling", "settings", "named"),
    [
        ("lasttoken", {}, "the pooling lasttoken"),
        ("mean", {"prompts": {"query": "they "}, "default_prompt_name": "query"}, "the prompt 'they '"),
        ("mean", {"truncate_dim": 8}, "truncate_dim"),
    ],
)
@pytest.mark.parametrize("role", ["model", "teacher"])
def test_what_training_would_not_keep_is_refused(
    role: str, pooling: str, settings: object, named: str, run: Train, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    start = shutil.copytree(tiny_bert_folder, tmp_path / "start")
    (start / "1_Pooling").mkdir()
    (start / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    (start / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=f"has {named}.*cannot train with"):
        run(tmp_path / "run", PAIRS if role == "model" else TEXTS, **{role: start})
    assert not (tmp_path / "run").exists()


def test_a_teacher_is_imitated(run: Train, tmp_path: Path) -> None:
    run(tmp_path / "teacher", PAIRS, "training.max_steps=3")
    one_layer = "model.num_hidden_layers=1"
    run(tmp_path / "start", TEXTS, one_layer, "training.learning_rate=1e-9", teacher=tmp_path / "teacher")
    settings = ("training.num_epochs=20", "training.learning_rate=5e-3", one_layer)
    report = run(tmp_path / "student", TEXTS, *settings, teacher=tmp_path / "teacher")
    texts = [f"{text} and {text}" for text in ANCHORS[::3]]  # not trained on
    target = regard.Embedder(tmp_path / "teacher").transform(texts)

    def distance(folder: Path) -> float:
        return 1 - float((regard.Embedder(folder, normalize=True).transform(texts) * target).sum(1).mean())

    assert distance(tmp_path / "student") < 0.5 * distance(tmp_path / "start")
    assert json.loads((tmp_path / "student" / "config.json").read_text())["num_hidden_layers"] == 1
    assert report.objective == "distillation" and not (tmp_path / "student" / "work").exists()


def test_a_teacher_of_another_size_gives_similarities_only(run: Train, tmp_path: Path, minilm_folder: Path) -> None:
    events: list[Any] = []
    run(tmp_path / "run", TEXTS, "training.max_steps=2", teacher=minilm_folder, on_event=events.append)
    step = next(event for event in events if event.type == "step")
    assert set(step.losses) == {"similarity"}


def test_scored_pairs_are_put_in_order(run: Train, tmp_path: Path) -> None:
    report = run(tmp_path / "run", SCORED, "training.num_epochs=20", dev=SCORED)
    history = report.outcome.history
    assert report.outcome.scores["spearman"] > max(60, history[0]["spearman"])
    assert report.objective == "CoSENT"


def test_the_start_model_is_kept_if_no_epoch_is_better(
    run: Train, tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([90.0, 80.0, 70.0, 60.0])
    monkeypatch.setattr(
        "regard.training.recipes.embedding.recipe.EmbeddingRecipe._scores",
        lambda self, model, device: {"spearman": next(scores), "pearson": 0.0},
    )
    notes: list[str] = []
    report = run(
        tmp_path / "run", SCORED, "training.num_epochs=3", dev=SCORED, on_event=lambda e: notes.append(e.line() or "")
    )
    assert report.outcome.epochs == [] and report.outcome.scores["spearman"] == report.start["spearman"] == 90
    assert any("before training" in note for note in notes) and "no epoch was better" in report.to_text()
    start = dict(regard.load(tiny_bert_folder)[0].named_parameters())
    for name, parameter in regard.load(tmp_path / "run")[0].named_parameters():
        assert torch.equal(parameter, start[name]), name


def test_a_tenth_of_scored_pairs_is_held_out(run: Train, tmp_path: Path) -> None:
    report = run(tmp_path / "run", SCORED, "training.num_epochs=1")
    sizes = [report.data[name]["rows"] for name in ("train", "dev")]
    assert sum(sizes) == len(SCORED) and sizes[1] == len(SCORED) // 10 and report.start


def test_matryoshka_vectors_stay_useful_when_truncated(run: Train, tmp_path: Path) -> None:
    def truncated(folder: Path) -> float:
        vectors = regard.Embedder(folder, normalize=False).transform
        return retrieval_scores(
            lambda texts: (v := vectors(texts)[:, :4]) / np.linalg.norm(v, axis=1, keepdims=True), ANCHORS, POSITIVES
        )["mrr"]

    run(tmp_path / "plain", PAIRS, "training.num_epochs=8")
    run(tmp_path / "matryoshka", PAIRS, "training.num_epochs=8", "objective.matryoshka=[32, 8, 4]")
    assert truncated(tmp_path / "matryoshka") > truncated(tmp_path / "plain")


@pytest.mark.parametrize("data", [PAIRS, TEXTS], ids=["pairs", "teacher"])
def test_a_crashed_run_is_resumed_bit_for_bit(
    data: TextRows, run: Train, tmp_path: Path, tiny_bert_folder: Path
) -> None:
    options = {"teacher": tiny_bert_folder} if data is TEXTS else {"dev": PAIRS}
    settings = ("run.checkpoint_every=1 steps", "model.dropout=0.1", "training.group_size=3")
    whole = run(tmp_path / "whole", data, *settings, **options)
    saved = 0

    def crash(event: Any) -> None:
        nonlocal saved
        saved += event.type == "checkpoint"
        if saved == 3:
            raise Crash

    with pytest.raises(Crash):
        run(tmp_path / "parts", data, *settings, on_event=crash, **options)
    with pytest.raises(InputError, match="unfinished run"):
        run(tmp_path / "parts", data, *settings, **options)
    parts = run(tmp_path / "parts", data, *settings, resume=True, **options)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    assert parts.outcome.scores == whole.outcome.scores and parts.outcome.tokens == whole.outcome.tokens
    again = run(tmp_path / "parts", data, *settings, resume=True, **options)
    assert again.outcome == parts.outcome


def test_ctrl_c_saves_and_a_resumed_run_finishes(run: Train, tmp_path: Path, default_sigint: None) -> None:
    def interrupt(event: Any) -> None:
        if event.type == "step":
            os.kill(os.getpid(), signal.SIGINT)

    settings = ("training.num_epochs=4", "run.checkpoint_every=1 steps")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", PAIRS, *settings, on_event=interrupt)
    report = run(tmp_path / "run", PAIRS, *settings, resume=True)
    whole = run(tmp_path / "whole", PAIRS, *settings)
    assert report.outcome.steps == whole.outcome.steps and weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_run_that_fails_before_its_first_step_leaves_nothing(run: Train, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one row has no negatives"):
        run(tmp_path / "run", TextRows((["a"], ["b"])))
    assert not (tmp_path / "run").exists()
    assert run(tmp_path / "run", PAIRS, "training.max_steps=1").outcome.steps == 1


def test_no_batch_of_a_teacher_has_too_many_texts(tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    texts = ["a"] * 70 + ["the film was good"] * 5
    tokenized = drain(tokenize(texts, tokenizer, max_length=16))
    monkeypatch.setattr(trainer, "TOKENS", {"cpu": 100})
    monkeypatch.setattr(trainer, "MAX_SEQUENCES", 20)
    sizes: list[int] = []
    pack = trainer.pack
    monkeypatch.setattr(trainer, "pack", lambda *a, **k: sizes.append(len(a[1])) or pack(*a, **k))
    vectors = drain(
        trainer.teacher_vectors(model, tokenized, pooling="mean", max_length=16, device=torch.device("cpu"))
    )
    assert max(sizes) <= 20 and sum(sizes) == 75
    expected = regard.Embedder(tiny_bert_folder, normalize=True, device="cpu").transform(texts)
    np.testing.assert_allclose(vectors, expected, atol=2e-3)  # in half precision


def test_a_budget_ends_the_run(run: Train, tmp_path: Path) -> None:
    report = run(tmp_path / "run", PAIRS, "training.budget=0.3s")
    assert report.outcome.steps >= 1 and report.outcome.seconds >= 0.3


def test_padded_batches_give_the_same_weights(run: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: None)
    run(tmp_path / "plain", TEXTS, "training.max_steps=3", teacher="regard-bert")
    run(tmp_path / "padded", TEXTS, "training.max_steps=3", "run.compile=on", teacher="regard-bert")
    plain, padded = (regard.load(tmp_path / name)[0].state_dict() for name in ("plain", "padded"))
    for name, tensor in plain.items():
        torch.testing.assert_close(tensor, padded[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (TEXTS, {}, "says nothing about similarity"),
        (PAIRS, {"teacher": "regard-bert"}, "has pairs"),
        (PAIRS, {"dev": TEXTS}, "expected pairs or scored pairs"),
        (TextRows((["a"], ["b"])), {}, "one row has no negatives"),
        (PAIRS, {"model": "regard-gpt"}, "cannot become an embedding model"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(
    data: TextRows, options: dict[str, Any], message: str, run: Train, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", data, **options)


@pytest.mark.parametrize(
    ("setting", "message"),
    [("model.num_hidden_layers=3", "has 2 layers"), ("objective.matryoshka=[64]", "the size 32")],
)
def test_settings_must_fit_the_model(setting: str, message: str, run: Train, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", PAIRS, setting)


def test_ties_count_against_a_query() -> None:
    vectors = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 1.0]}
    scores = retrieval_scores(lambda texts: np.array([vectors[text] for text in texts]), ["a", "c"], ["b", "c"])
    assert scores == {"recall@1": 100.0, "recall@10": 100.0, "mrr": 100.0}
    scores = retrieval_scores(lambda texts: np.array([vectors[text] for text in texts]), ["a", "a"], ["b", "a"])
    assert scores["recall@1"] == 0 and scores["mrr"] == 50
