"""Complete runs in this process: what is learned, and the files in the output folder."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.data.corpus import Corpus
from regard.errors import InputError, RegardError
from regard.events import drain
from regard.models import T5, Bert, Elmo
from regard.nn.masks import Padded
from regard.training import trainer as module
from regard.training.checkpoint import Checkpoints
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import open_dataset
from regard.training.recipes.pretraining.objectives import MaskedLanguageModeling, PretrainingDataset
from regard.training.recipes.pretraining.run import PretrainingResult, pretrain
from tests.training.recipes.pretraining.runs import STEPS, config, events, losses

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("fast_run_settings")


def train(
    sources: Path, output: Path, *, family: Any = "bert", held_out: Path | None = None, start: str = "", **changed: Any
) -> PretrainingResult:
    held_out_sources = [] if held_out is None else [str(held_out)]
    return drain(
        pretrain(config(family, **changed), [str(sources)], output, held_out=held_out_sources, start=start, device=CPU)
    )


def unigram(dataset: PretrainingDataset) -> float:
    """The loss of a model that knows only the token frequencies."""
    counts = Counter(np.concatenate(dataset.text.pieces).tolist())
    total = sum(counts.values())
    tokens = np.concatenate(dataset.held_out.pieces).tolist()
    return sum(-math.log((counts[token] + 1) / (total + len(counts))) for token in tokens) / len(tokens)


LEARNING: dict[str, dict[str, Any]] = {
    "bert": {"objective_sentence_pairs": "next", "optimizer_name": "muon", "optimizer_learning_rate": 0.02},
    "gpt": {"family": "gpt"},
    "t5": {"family": "t5", "optimizer_name": "muon", "optimizer_learning_rate": 0.02},
    "elmo": {"family": "elmo"},
}
# The score that is the token loss; an ELMo has two.
ASKED = {"gpt": "lm", "t5": "spans", "elmo": "forwards"}


@pytest.mark.parametrize("name", LEARNING)
def test_a_model_learns_more_than_token_frequencies(name: str, source: Path, unseen: Path, tmp_path: Path) -> None:
    changed = {
        "schedule_max_steps": 60,
        "data_tokens_per_batch": 512,
        "run_evaluate_every": "30 steps",
        **LEARNING[name],
    }
    result = train(source, tmp_path, held_out=unseen, **changed)
    family = changed.get("family", "bert")
    dataset = open_dataset(config(family), [str(source)], tmp_path, held_out=True)
    tokens = ASKED.get(family, "mlm")
    loss = result.scores[tokens]["loss"]
    assert loss < unigram(dataset) - 0.3
    if family == "elmo":
        assert result.scores["backwards"]["loss"] < unigram(dataset) - 0.3
        assert result.scores["backwards"]["perplexity"] == math.exp(result.scores["backwards"]["loss"])
    evaluated = events(tmp_path, "evaluation")
    assert [event["step"] for event in evaluated] == [30, 60]
    assert evaluated[0]["scores"][tokens]["loss"] > evaluated[1]["scores"][tokens]["loss"] == loss
    first, last = losses(tmp_path)[1][0], losses(tmp_path)[60][0]
    assert last[0] < first[0] - 1


@pytest.mark.parametrize(
    "changed",
    [
        {"objective_sentence_pairs": "next"},
        {"objective_sentence_pairs": "none"},
        {"objective_whole_word_mask": "true"},
        {"objective_short_seq_prob": 0.0, "data_max_length": 16},
        {"data_tokens_per_micro_batch": 128},
        {"run_precision": "bf16"},
        {"run_gradient_checkpointing": "true", "model_dropout": 0.1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_kind_of_run_learns_something(
    changed: dict[str, Any], corpus: Path, unseen: Path, tmp_path: Path
) -> None:
    result = train(corpus, tmp_path, held_out=unseen, schedule_max_steps=30, **changed)
    start = math.log(120)
    assert result.scores["mlm"]["loss"] < start - 1.2
    assert ("nsp" in result.scores) == (changed.get("objective_sentence_pairs") == "next")
    assert set(events(tmp_path, "step")[0]) >= {"loss", "losses"}
    assert ("nsp" in events(tmp_path, "step")[0]["losses"]) == (changed.get("objective_sentence_pairs") != "none")


def test_gradient_checkpointing_does_not_change_the_result(corpus: Path, tmp_path: Path) -> None:
    for name, enable_gradient_checkpointing in (("a", "true"), ("b", "false")):
        train(
            corpus,
            tmp_path / name,
            run_gradient_checkpointing=enable_gradient_checkpointing,
            model_dropout=0.1,
            schedule_max_steps=3,
        )
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


FINISHED = {"objective_sentence_pairs": "next", "run_evaluate_every": "5 steps", "optimizer_max_grad_norm": 0.5}


@pytest.fixture(scope="module")
def finished(corpus: Path, unseen: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[PretrainingResult, Path]:
    """A finished run with the default settings."""
    output = tmp_path_factory.mktemp("finished") / "deep" / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LOG_EVERY", 0.0)
        patch.setattr("regard.training.speed.SECONDS", 0.0)
        return train(corpus, output, held_out=unseen, **FINISHED), output


SENTENCES = "The river follows the painter.", "The winter builds the city."


def test_the_output_is_a_model(finished: tuple[PretrainingResult, Path]) -> None:
    _, output = finished
    ours, tokenizer = regard.load(output)
    theirs = transformers.BertForPreTraining.from_pretrained(output).eval()
    assert isinstance(ours, Bert) and tokenizer is not None and not ours.training
    assert ours.mlm_head is not None and ours.nsp_head is not None and ours.pooler is not None
    encoding = tokenizer.encode(*SENTENCES)
    their_encoding = transformers.AutoTokenizer.from_pretrained(output)(*SENTENCES)
    assert their_encoding["input_ids"] == encoding.ids and their_encoding["token_type_ids"] == encoding.segments
    ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.segments])
    with torch.no_grad():
        found = theirs(ids, token_type_ids=segments)
        hidden = ours(ids, None, segments)
        words, pairs = ours.mlm_head(hidden), ours.nsp_head(ours.pooler(hidden, Padded()))
    torch.testing.assert_close(words, found.prediction_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pairs, found.seq_relationship_logits, atol=1e-5, rtol=1e-5)


def test_transformers_loads_a_t5_with_the_same_outputs(source: Path, tmp_path: Path) -> None:
    train(source, tmp_path, family="t5")
    ours, tokenizer = regard.load(tmp_path)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    assert isinstance(ours, T5) and tokenizer is not None
    given = torch.tensor([tokenizer.encode("The <extra_id_0> follows the painter.").ids])
    labels = torch.tensor([tokenizer.encode("<extra_id_0> river<extra_id_1>").ids])
    with torch.no_grad():
        expected = theirs(given, labels=labels)
        decoder_ids = torch.cat([torch.tensor([[ours.begin]]), labels[:, :-1]], dim=1)
        logits = ours.logits(ours(given, decoder_ids))
    torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=1e-5)
    loss = torch.nn.functional.cross_entropy(logits[0], labels[0])
    assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)


def test_an_elmo_can_be_loaded(source: Path, tmp_path: Path) -> None:
    train(source, tmp_path, family="elmo", model_intermediate_size=32)
    model, tokenizer = regard.load(tmp_path)
    assert isinstance(model, Elmo) and model.output is not None and tokenizer is not None
    assert (model.config.hidden_size, model.config.cell_size, model.config.num_characters) == (32, 32, 0)
    vectors = regard.Embedder(tmp_path, layers="concat(:)").transform([*SENTENCES])
    assert vectors.shape == (2, 3 * 64)
    ids = torch.tensor([tokenizer.encode(SENTENCES[0]).ids])
    with torch.no_grad():
        states = torch.cat([state[0].mean(0) for state in model.states(ids)])
    np.testing.assert_allclose(vectors[0], states.numpy(), atol=1e-5)


def test_the_event_log(finished: tuple[PretrainingResult, Path], corpus: Path) -> None:
    result, output = finished
    log = events(output)
    steps = [event for event in log if event["type"] == "step"]
    plan, end = log[1], log[-1]  # after the note that announces the measurement
    assert (plan["type"], plan["steps"], plan["tokens"]) == ("plan", STEPS, STEPS * 256)
    tokens = Corpus.open(corpus).tokens
    assert plan["tokens_per_second"] > 0 and plan["mfu"] > 0 and plan["epochs"] == STEPS * 256 / tokens
    assert [event["step"] for event in steps] == [*range(1, STEPS + 1)]
    assert [event["progress"] for event in steps] == [number / STEPS for number in range(STEPS)]
    assert all(event["loss"] == pytest.approx(sum(event["losses"].values()), abs=1e-5) for event in steps)
    rates = [event["learning_rate"] for event in steps]
    assert rates[0] == pytest.approx(0.01 * 0.01) and max(rates) == rates[1] and rates[-1] == min(rates[1:])
    assert [event["step"] for event in log if event["type"] == "checkpoint"] == [4, 8, 12]
    assert [event["step"] for event in log if event["type"] == "evaluation"] == [5, 10]
    assert (end["type"], end["steps"], end["tokens"]) == ("finished", STEPS, steps[-1]["tokens"])
    figures = {name: end[name] for name in ("steps", "tokens", "seconds", "scores")}
    assert result == PretrainingResult(output=str(output), **figures) and result.steps == STEPS
    assert 0.9 * STEPS * 256 < result.tokens <= STEPS * 256
    assert [event["time"] for event in log] == sorted(event["time"] for event in log)


def test_the_settings_are_saved(finished: tuple[PretrainingResult, Path]) -> None:
    _, output = finished
    saved = PretrainingConfig.read(output / "config.toml", family="bert")
    assert not saved.differences(config(**FINISHED))


def test_the_newest_checkpoints_remain(finished: tuple[PretrainingResult, Path]) -> None:
    _, output = finished
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["step-000000008", "step-000000012"]
    latest = Checkpoints(output / "checkpoints").latest()
    model, _ = regard.load(output)
    assert latest is not None
    for name, tensor in model.state_dict().items():
        assert torch.equal(latest.tensors[f"model.{name}"], tensor), name


def test_the_measured_steps_do_not_train(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(corpus, tmp_path / "a", schedule_max_steps=2)
    monkeypatch.setattr("regard.training.speed.SECONDS", 0.3)
    train(corpus, tmp_path / "b", schedule_max_steps=2)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_randomness_follows_from_the_seed(corpus: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(len(name + str(seed)) * 7)
        train(corpus, tmp_path / name, schedule_max_steps=2, run_seed=seed, model_dropout=0.1)
    assert losses(tmp_path / "a") == losses(tmp_path / "b") != losses(tmp_path / "c")


def test_a_run_may_start_from_a_model(
    finished: tuple[PretrainingResult, Path], corpus: Path, unseen: Path, tmp_path: Path
) -> None:
    result, before = finished
    train(
        corpus, tmp_path / "a", held_out=unseen, start=str(before), schedule_max_steps=1, optimizer_learning_rate=1e-9
    )
    (end,) = events(tmp_path / "a", "finished")
    assert end["scores"]["mlm"]["loss"] == pytest.approx(result.scores["mlm"]["loss"], abs=1e-4)
    with pytest.raises(InputError, match="hidden_size was 32 and is 64"):
        train(corpus, tmp_path / "b", start=str(before), model_hidden_size=64)


@pytest.mark.parametrize(("every", "left"), [("4 steps", ["step-000000004"]), ("", [])])
def test_a_run_that_diverges_leaves_the_last_good_checkpoint(
    every: str, left: list[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, measured, calls = MaskedLanguageModeling.forward, 6, list[int]()

    def forward(self: MaskedLanguageModeling, *args: Any, **options: Any) -> dict[str, torch.Tensor]:
        calls.append(1)
        losses = plain(self, *args, **options)
        return losses if len(calls) <= measured + 5 else {name: loss * math.nan for name, loss in losses.items()}

    monkeypatch.setattr(MaskedLanguageModeling, "forward", forward)
    monkeypatch.setattr(module, "LOG_EVERY", math.inf)
    with pytest.raises(RegardError, match=r"diverged: at step \d+ .*nan.*Lower optimizer\.learning_rate"):
        train(corpus, tmp_path, run_checkpoint_every=every)
    checkpoints = tmp_path / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == left if left else not checkpoints.exists()
    assert not (tmp_path / "config.json").exists()


def test_steps_and_budget_exclude_each_other(corpus: Path, tmp_path: Path) -> None:
    for changed in ({"schedule_max_steps": 0}, {"schedule_budget": "2s"}):
        with pytest.raises(InputError, match="how long to train"):
            train(corpus, tmp_path / "run", **changed)
    assert not (tmp_path / "run").exists()


def test_an_existing_model_is_not_overwritten(
    corpus: Path, finished: tuple[PretrainingResult, Path], tmp_path: Path
) -> None:
    model, tokenizer = regard.load(finished[1])
    regard.save(model, tmp_path, tokenizer)
    with pytest.raises(InputError, match=r"holds a model, .*choose another --output"):
        train(corpus, tmp_path)
    assert not (tmp_path / "config.toml").exists()
