"""Losses compared with plain computations over all positions and with transformers on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import regard
from regard.data.masking import IGNORE_INDEX, Masking
from regard.errors import InputError
from regard.models import T5, Bert, BertConfig, Elmo, ElmoConfig, Gpt, GptConfig, T5Config
from regard.models.family import build, get_family
from regard.training.recipes.pretraining.micro_batches import MicroBatch, MicroBatches
from regard.training.recipes.pretraining.objectives import (
    BidirectionalLanguageModeling,
    CausalLanguageModeling,
    MaskedLanguageModeling,
    SpanDenoising,
    masking_for,
    mean_loss,
    token_loss,
)
from regard.training.recipes.pretraining.row_sampler import SentencePairs, TextChunks
from regard.training.recipes.pretraining.span_corruption import SpanCorruption, SpanSizes
from tests.training.recipes.pretraining.texts import FIRST, MASK, TOKENIZER, token_stream

TEXT = token_stream([[3, 4, 5, 2], [6, 1], [4, 4, 4], [7], [2, 2, 2, 2, 2]] * 4)
LONG = token_stream([[3, 4, 5, 2], [6, 8], [4, 4, 5], [3] * 5] * 4)  # every document fills a row
VOCABULARY = LONG.tokens + FIRST
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 32,
}
LENGTH = 16
NEAR: dict[str, float] = {"atol": 1e-5, "rtol": 0}
Randomise = Callable[..., Any]

KINDS: dict[str, dict[str, Any]] = {
    "packed": {"kind": "next", "short": 0.5},
    "rectangle": {"kind": "order", "short": 0.0},
}


def batch_of(kind: str) -> MicroBatch:
    if kind == "single":
        return MicroBatches(TextChunks(TEXT, tokens=LENGTH - 2, seed=3), TOKENIZER, tokens=70, pairs=False).micro_batch(
            0, 0
        )
    rows = SentencePairs(LONG if kind == "rectangle" else TEXT, tokens=LENGTH - 3, seed=3, **KINDS[kind])
    return MicroBatches(rows, TOKENIZER, tokens=130, pairs=True).micro_batch(0, 0)


@pytest.fixture
def bert(randomized: Randomise) -> Bert:
    model: Bert = randomized(Bert(BertConfig(**SHAPE)))
    return model.eval()


def objective_of(model: Bert) -> MaskedLanguageModeling:
    masking = Masking(torch.arange(VOCABULARY) < FIRST, mask=MASK, rate=0.3)
    return MaskedLanguageModeling(model, masking, length=LENGTH)


def rectangle(batch: MicroBatch, *flat: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Values of each token as rows with a mask; packed batches are padded on the right."""
    if batch.starts is None:
        shape = batch.ids.shape
        return torch.ones(shape, dtype=torch.long), [values.view(shape) for values in flat]
    sizes = [size for size in batch.starts.diff().tolist() if size]
    keep = torch.nn.utils.rnn.pad_sequence([torch.ones(size, dtype=torch.long) for size in sizes], batch_first=True)
    rows = [torch.nn.utils.rnn.pad_sequence(list(values.split(sizes)), batch_first=True) for values in flat]
    return keep, rows


@pytest.mark.parametrize("kind", ["packed", "rectangle", "single"])
def test_masked_lm_and_pair_losses_equal_transformers(kind: str, bert: Bert, tmp_path: Path) -> None:
    batch, objective = batch_of(kind), objective_of(bert)
    inputs = objective.prepare(batch, torch.Generator().manual_seed(0))
    losses = objective(**inputs)
    assert ("starts" in inputs) == (kind == "packed")
    assert set(losses) == ({"mlm", "loss"} if kind == "single" else {"mlm", "nsp", "loss"})

    regard.save(bert, tmp_path)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    targets = torch.full((inputs["ids"].numel(),), IGNORE_INDEX)
    targets[inputs["masked_positions"]] = inputs["targets"]
    assert (targets != IGNORE_INDEX).sum() > 8
    segments = batch.segments if batch.segments is not None else torch.zeros_like(batch.ids)
    keep, (ids, positions, answers) = rectangle(batch, inputs["ids"].long(), segments.long(), targets)
    answers = answers.masked_fill(keep == 0, IGNORE_INDEX)
    output = theirs(ids, attention_mask=keep, token_type_ids=positions)
    words = F.cross_entropy(output.prediction_logits.flatten(0, 1), answers.flatten(), ignore_index=IGNORE_INDEX)
    torch.testing.assert_close(losses["mlm"], words, **NEAR)
    if kind == "single":
        torch.testing.assert_close(losses["loss"], words, **NEAR)
        return
    labels = inputs["labels"][: len(ids)]  # followed by empty rows
    assert {0, 1} <= {*labels.tolist()}
    theirs_whole = theirs(
        ids, attention_mask=keep, token_type_ids=positions, labels=answers, next_sentence_label=labels
    )
    torch.testing.assert_close(losses["loss"], theirs_whole.loss, **NEAR)
    torch.testing.assert_close(losses["nsp"], theirs_whole.loss - words, **NEAR)


@pytest.mark.parametrize("kind", ["packed", "single"])
def test_only_masked_tokens_reach_the_output_layer(kind: str, bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, objective = batch_of(kind), objective_of(bert)
    inputs = objective.prepare(batch, torch.Generator().manual_seed(0))
    seen: dict[str, int] = {}
    assert bert.mlm_head is not None
    watched = {"first": bert.encoder.layers[0].ffn, "last": bert.encoder.layers[-1].ffn, "head": bert.mlm_head.linear}
    for name, module in watched.items():
        module.register_forward_hook(
            lambda module, given, output, name=name: seen.update({name: given[0].numel() // 8})
        )
    plain, products = F.linear, []

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if len(weight) == VOCABULARY:
            products.append(len(x))
        return plain(x, weight, bias)

    monkeypatch.setattr(F, "linear", linear)
    objective(**inputs)
    holes = round(0.3 * batch.ids.numel())
    assert len(inputs["masked_positions"]) == holes
    firsts = 0 if batch.labels is None else len(batch.labels)
    assert seen == {"first": batch.ids.numel(), "last": holes + firsts, "head": holes}
    assert products == [holes]


def test_masks_follow_from_the_generator_alone(bert: Bert) -> None:
    batch, objective = batch_of("packed"), objective_of(bert)
    one, same, other = (objective.prepare(batch, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["masked_positions"], other["masked_positions"])
    assert torch.equal(batch_of("packed").ids, batch.ids)  # masking works on a copy


def test_next_token_loss_equals_transformers(randomized: Randomise, tmp_path: Path) -> None:
    model: Gpt = randomized(Gpt(GptConfig(**SHAPE))).eval()
    rows = TextChunks(TEXT, tokens=9, seed=0)
    batch = MicroBatches(rows, TOKENIZER, tokens=45, pairs=False, bare=True).micro_batch(0, 0)
    objective = CausalLanguageModeling(model)
    inputs = objective.prepare(batch, torch.Generator())
    assert inputs["ids"].shape == inputs["targets"].shape == (5, 8)
    losses = objective(**inputs)
    regard.save(model, tmp_path)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    ids = batch.ids.long()
    torch.testing.assert_close(losses["loss"], theirs(ids, labels=ids).loss, **NEAR)
    assert losses["lm"] is losses["loss"]


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_next_token_loss_has_the_output_layer_of_the_model(family: str, randomized: Randomise) -> None:
    """An untied model predicts with a matrix of its own, in GPT-J with a bias."""
    shape = {**SHAPE, "rotary_dim": 2} if family == "gptj" else {**SHAPE, "num_key_value_heads": 2}
    model = randomized(build(get_family(family).config_class(**{**shape, "family": family}))).eval()
    assert model.output_weight is not model.embedding.tokens.weight
    ids = torch.randint(VOCABULARY, (3, 9))
    losses = CausalLanguageModeling(model)(ids[:, :-1], ids[:, 1:])
    expected = F.cross_entropy(model.logits(model(ids[:, :-1])).flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(losses["lm"], expected, **NEAR)


@pytest.mark.parametrize("heads", [(), ("output",)])
def test_span_corruption_loss_equals_transformers(
    heads: tuple[str, ...], randomized: Randomise, tmp_path: Path
) -> None:
    shape = T5Config(
        vocab_size=VOCABULARY + 9,
        hidden_size=8,
        head_dim=4,
        num_hidden_layers=2,
        num_decoder_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        scale_decoder_outputs=not heads,
        decoder_start_token_id=4,
        pad_token_id=4,
    )
    model: T5 = randomized(T5(shape, output_heads=heads)).eval()
    sizes = SpanSizes.filling(12, rate=0.3, span=2.0)
    corruption = SpanCorruption(sizes, sentinels=[*range(VOCABULARY + 8, VOCABULARY, -1)], end=1)
    rows = TextChunks(LONG, tokens=sizes.tokens, seed=0)
    batch = MicroBatches(rows, TOKENIZER, tokens=4 * sizes.tokens, pairs=False, bare=True).micro_batch(0, 0)
    objective = SpanDenoising(model, corruption)
    inputs = objective.prepare(batch, torch.Generator().manual_seed(1))
    expected = corruption(batch.ids, torch.Generator().manual_seed(1))
    assert torch.equal(inputs["ids"], expected.inputs) and torch.equal(inputs["targets"], expected.targets)
    losses = objective(**inputs)
    regard.save(model, tmp_path)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    found = theirs(inputs["ids"], labels=inputs["targets"])
    torch.testing.assert_close(losses["loss"], found.loss, **NEAR)
    assert losses["spans"] is losses["loss"]


def test_bidirectional_loss_compared_with_all_positions(randomized: Randomise) -> None:
    shape = ElmoConfig(vocab_size=VOCABULARY, num_characters=0, hidden_size=6, cell_size=6, num_hidden_layers=2)
    model: Elmo = randomized(Elmo(shape)).eval()
    batch = batch_of("single")
    objective = BidirectionalLanguageModeling(model)
    losses = objective(**objective.prepare(batch, torch.Generator()))
    ahead, back = [], []
    for row in batch.ids.long():
        after, before = model.logits(model(row[None])[0])
        for at in range(1, len(row) - 1):
            ahead.append(-after[at - 1].log_softmax(0)[row[at]])
            back.append(-before[at + 1].log_softmax(0)[row[at]])
    torch.testing.assert_close(losses["forwards"], torch.stack(ahead).mean(), **NEAR)
    torch.testing.assert_close(losses["backwards"], torch.stack(back).mean(), **NEAR)
    torch.testing.assert_close(losses["loss"], (losses["forwards"] + losses["backwards"]) / 2, **NEAR)


def test_the_loss_without_targets_is_zero() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    loss = mean_loss(logits, torch.full((3,), IGNORE_INDEX))
    loss.backward()
    assert loss == 0 and logits.grad is not None and not logits.grad.any()


@pytest.mark.parametrize("bias", [True, False])
def test_vocabulary_padding_does_not_change_the_loss(bias: bool, device: torch.device) -> None:
    """The vocabulary is padded on a GPU only."""
    vectors = torch.randn(6, 8, device=device, requires_grad=True)
    weight = torch.randn(70, 8, device=device, requires_grad=True)
    more = torch.randn(70, device=device, requires_grad=True) if bias else None
    targets = torch.tensor([0, 69, 3, IGNORE_INDEX, 5, 69], device=device)
    inputs = [tensor for tensor in (vectors, weight, more) if tensor is not None]
    found = torch.autograd.grad(loss := token_loss(vectors, weight, more, targets), inputs)
    wanted = F.cross_entropy(F.linear(vectors, weight, more), targets)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, inputs))


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "walk", "##ing", "talk", "##ed"]
WORDS: Any = SimpleNamespace(
    pad_token_id=0,
    unk_token_id=1,
    cls_token_id=2,
    sep_token_id=3,
    mask_token_id=4,
    size=len(PIECES),
    token=PIECES.__getitem__,
)


def test_special_tokens_are_never_masked() -> None:
    masking = masking_for(WORDS, rate=0.5, replace=(0.0, 1.0, 0.0))
    assert masking.special.tolist() == [True] * 5 + [False] * 4
    assert (masking.mask, masking.rate, masking.replace, masking.continues) == (4, 0.5, (0.0, 1.0, 0.0), None)


def test_whole_word_masking_uses_the_piece_prefix() -> None:
    continues = masking_for(WORDS, whole_words=True).continues
    assert continues is not None and continues.nonzero().flatten().tolist() == [6, 8]
    plain: Any = SimpleNamespace(**{**vars(WORDS), "token": lambda number: f"Ġ{number}"})
    with pytest.raises(InputError, match=r"only with a WordPiece vocabulary, .*no ## pieces"):
        masking_for(plain, whole_words=True)


def test_large_logits_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    vectors, weight, bias = (torch.randn(shape, generator=generator) for shape in ((7, 4), (5, 4), (5,)))
    targets = torch.tensor([0, 4, IGNORE_INDEX, 2, 1, 1, IGNORE_INDEX])
    inputs = [tensor.requires_grad_() for tensor in (vectors, weight, bias)]
    whole = token_loss(vectors, weight, bias, targets)
    expected = torch.autograd.grad(whole, inputs)
    token_stream = []
    linear = F.linear

    def counted(*args: Tensor) -> Tensor:
        token_stream.append(linear(*args))
        return token_stream[-1]

    monkeypatch.setattr("regard.training.recipes.pretraining.objectives.MAX_ELEMENTS", 2 * 5)
    monkeypatch.setattr("regard.training.recipes.pretraining.objectives.F.linear", counted)
    loss = token_loss(vectors, weight, bias, targets)
    assert [part.numel() for part in token_stream] == [10, 10, 10, 5]
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), expected)
