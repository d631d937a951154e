"""Perplexity compared with transformers: one window by its loss, several windows and masks token by token."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.inference.likelihood import read_text_file
from regard.models import T5, Bert, BertConfig, Elmo, ElmoConfig, Gpt, T5Config
from regard.text import Tokenizer
from tests.inference.conftest import Loaded, load
from tests.inference.folders import byte_level, tiny_gpt
from tests.inference.measure import measure_perplexity

SHORT = "the film, é"
LONG = "the film was a good day\nand naïve "
WORDS = "the film was good and they love it. it is so dull, she said"


@pytest.fixture(scope="module")
def their_gpt(gpt_folder: Path) -> Any:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(gpt_folder).eval()


@pytest.fixture(scope="module")
def their_bert(tiny_bert_folder: Path) -> Any:
    from transformers import BertForMaskedLM

    return BertForMaskedLM.from_pretrained(tiny_bert_folder).eval()


def nll(theirs: Any, ids: list[int], position: int, right: int) -> float:
    with torch.no_grad():
        return -float(theirs(torch.tensor([ids])).logits[0, position].double().log_softmax(-1)[right])


def test_one_window_equals_the_loss_of_transformers(gpt: Loaded, their_gpt: Any) -> None:
    body = gpt[1].encode(SHORT).ids
    ids = torch.tensor([[0, *body]])
    assert ids.shape[1] <= 16
    with torch.no_grad():
        loss = float(their_gpt(ids, labels=ids).loss)
    found = measure_perplexity(*gpt, SHORT)
    assert (found.kind, found.tokens, found.text_tokens, found.bytes) == ("perplexity", len(body), len(body), 12)
    assert found.nll == pytest.approx(loss * len(body), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    assert found.bits_per_byte == pytest.approx(found.nll / 12 / math.log(2))


@pytest.mark.parametrize(("length", "stride"), [(None, None), (16, 16), (10, 3), (7, 1), (1, 1)])
@pytest.mark.parametrize("budget", [2048, 16])
def test_windows_token_by_token(
    length: int | None, stride: int | None, budget: int, gpt: Loaded, their_gpt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.inference.likelihood.BATCH_TOKENS", {"cpu": budget})
    monkeypatch.setattr("regard.inference.causal_lm.BATCH_TOKENS", {"cpu": budget})
    monkeypatch.setattr("regard.inference.causal_lm.ROWS", 5)
    ids = [0, *gpt[1].encode(LONG * 2).ids]
    size, step = length or 16, stride or 8
    expected = 0.0
    for target in range(1, len(ids)):
        start = step * max(0, math.ceil((target - size) / step))  # the first window that reaches the token before it
        expected += nll(their_gpt, ids[start:target], -1, ids[target])
    progress: list[tuple[int, int]] = []
    found = measure_perplexity(
        *gpt, LONG * 2, max_length=length, stride=stride, on_progress=lambda *report: progress.append(report)
    )
    assert found.tokens == len(ids) - 1 > 2 * 16
    assert found.nll == pytest.approx(expected, rel=1e-5)
    assert progress[0] == (0, found.tokens)
    assert progress[-1] == (found.tokens, found.tokens)
    assert progress == sorted(progress)


def test_without_a_begin_token_the_first_is_not_scored(tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    folder = tiny_gpt(tmp_path, begin=False)
    model, tokenizer = load(folder)
    ids = torch.tensor([tokenizer.encode(SHORT).ids])
    with torch.no_grad():
        loss = float(GPT2LMHeadModel.from_pretrained(folder).eval()(ids, labels=ids).loss)
    found = measure_perplexity(model, tokenizer, SHORT)
    count = ids.shape[1]
    assert (found.tokens, found.text_tokens) == (count - 1, count)
    assert found.nll == pytest.approx(loss * (count - 1), rel=1e-5)
    assert found.bits_per_byte == pytest.approx(loss * count / 12 / math.log(2), rel=1e-5)
    with pytest.raises(InputError, match=r"text has 1 tokens, .*tokenizer puts none"):
        measure_perplexity(model, tokenizer, "x")


@pytest.mark.parametrize("length", [None, 9])
@pytest.mark.parametrize("budget", [2048, 20])
def test_pseudo_perplexity_token_by_token(
    length: int | None, budget: int, bert: Loaded, their_bert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.inference.masked_lm.BATCH_TOKENS", {"cpu": budget})
    _, tokenizer = bert
    cls, *body, sep = tokenizer.encode(WORDS).ids
    size = len(body) if length is None else length - 2
    expected = 0.0
    for position, right in enumerate(body):
        start = min(max(0, position - size // 2), len(body) - size)
        row = [cls, *body[start : start + size], sep]
        row[position - start + 1] = 4
        expected += nll(their_bert, row, position - start + 1, right)
    progress: list[tuple[int, int]] = []
    found = measure_perplexity(*bert, WORDS, max_length=length, on_progress=lambda *report: progress.append(report))
    assert (found.kind, found.tokens, found.unknown) == ("pseudo-perplexity", len(body), 0)
    assert found.nll == pytest.approx(expected, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(expected / len(body)), rel=1e-4)
    assert progress[0] == (0, len(body))
    assert progress[-1] == (len(body), len(body))


def test_a_sample_is_a_subset_of_all_tokens(bert: Loaded) -> None:
    complete = measure_perplexity(*bert, WORDS)
    first, again, other = (measure_perplexity(*bert, WORDS, sample=4, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert (first.tokens, first.text_tokens, first.bytes) == (4, complete.tokens, complete.bytes)
    assert first.bits_per_byte == pytest.approx(first.nll / 4 * complete.tokens / complete.bytes / math.log(2))
    assert measure_perplexity(*bert, WORDS, sample=1000) == complete
    # Samples of all tokens except one each omit a different token.
    nearly = [measure_perplexity(*bert, WORDS, sample=complete.tokens - 1, seed=seed).nll for seed in range(5)]
    assert len({round(value, 4) for value in nearly}) > 1
    assert all(value < complete.nll for value in nearly)


def test_a_tokenizer_that_adds_the_begin_token_changes_nothing(gpt: Loaded, tmp_path: Path) -> None:
    model, tokenizer = gpt
    folder = tmp_path / "vocabulary"
    byte_level(folder, specials=["<|endoftext|>"], kind="gpt2")
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    beginning = Tokenizer.open(folder)
    assert beginning.encode(SHORT).ids == [0, *tokenizer.encode(SHORT).ids]
    assert measure_perplexity(model, beginning, SHORT) == measure_perplexity(model, tokenizer, SHORT)


def test_a_begin_token_outside_the_vocabulary_is_ignored(gpt: Loaded) -> None:
    model, tokenizer = gpt
    assert isinstance(model, Gpt)
    strange = Gpt(replace(model.config, bos_token_id=50256)).eval()
    strange.load_state_dict(model.state_dict())
    assert measure_perplexity(strange, tokenizer, SHORT) == measure_perplexity(model, tokenizer, SHORT)


def test_unusual_text_and_unusual_logits(gpt: Loaded, bert: Loaded) -> None:
    assert measure_perplexity(*gpt, "the \ud800").bytes == 7
    model = Bert(
        BertConfig(
            vocab_size=bert[1].size,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=32,
        )
    )
    assert model.mlm_head is not None
    with torch.no_grad():
        model.mlm_head.bias[0] = 1000.0
    assert measure_perplexity(model, bert[1], WORDS).perplexity == math.inf


def test_unknown_words_are_counted(bert: Loaded) -> None:
    found = measure_perplexity(*bert, "the € film ß day")
    assert (found.tokens, found.unknown, found.bytes) == (5, 2, 19)


def test_on_every_device(
    bert: Loaded, gpt: Loaded, tiny_bert_folder: Path, gpt_folder: Path, device: torch.device
) -> None:
    for folder, here in ((tiny_bert_folder, bert), (gpt_folder, gpt)):
        there = measure_perplexity(*regard.load(folder, device=device), WORDS)
        assert there.nll == pytest.approx(measure_perplexity(*here, WORDS).nll, rel=1e-4)


def test_training_mode_is_restored(bert: Loaded, tiny_bert_folder: Path) -> None:
    model, _ = regard.load(tiny_bert_folder)
    model.train()
    assert measure_perplexity(model, bert[1], WORDS) == measure_perplexity(*bert, WORDS)
    assert model.training


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("gpt", {"max_length": 17}, "max_length is 17; expected 1 to 16, the positions"),
        ("gpt", {"max_length": 8, "stride": 9}, "stride is 9; expected 1 to 8"),
        ("gpt", {"stride": 0}, "stride is 0"),
        ("gpt", {"sample": 3}, "sample is for masked models"),
        ("bert", {"stride": 3}, "stride is for causal models"),
        ("bert", {"max_length": 2}, "max_length is 2, and 2 special tokens leave no room"),
        ("bert", {"max_length": 129}, "max_length is 129; expected 1 to 128"),
        ("bert", {"sample": 0}, "sample is 0; expected the number of tokens"),
    ],
)
def test_invalid_options(model: str, options: dict[str, int], message: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(InputError, match=message):
        measure_perplexity(*request.getfixturevalue(model), WORDS, **options)  # type: ignore[arg-type]


def test_models_without_a_language_modeling_head_are_refused(bert: Loaded, gpt: Loaded) -> None:
    t5 = T5(
        T5Config(
            vocab_size=200,
            hidden_size=16,
            num_hidden_layers=1,
            num_decoder_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    with pytest.raises(InputError, match="this is a T5 model; use a GPT-2, or a BERT"):
        measure_perplexity(t5, bert[1], WORDS)
    elmo = Elmo(ElmoConfig(vocab_size=200, num_characters=0, hidden_size=8, cell_size=8, num_hidden_layers=1))
    with pytest.raises(InputError, match="and this is an ELMo model; use"):
        measure_perplexity(elmo, bert[1], WORDS)
    bare = Bert(
        BertConfig(vocab_size=200, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16),
        output_heads=["pooler"],
    )
    with pytest.raises(InputError, match=r"needs a masked-word head.*bert model"):
        measure_perplexity(bare, bert[1], WORDS)
    with pytest.raises(InputError, match="has no tokenizer"):
        measure_perplexity(gpt[0], None, WORDS)
    with pytest.raises(InputError, match="the text has no tokens"):
        measure_perplexity(*bert, "\u200b \x01")


def test_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("é one\r\n\r\ntwo\n".encode()))
    assert read_text_file(tmp_path / "a.txt.gz") == "é one\n\ntwo"
    (tmp_path / "b.txt").write_bytes(b" \n\n")
    with pytest.raises(InputError, match=r"b\.txt is empty; expected a text"):
        read_text_file(tmp_path / "b.txt")
