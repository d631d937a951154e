"""Scores of a pretrained model on held-out text.

The same text and seed give the same questions for every model, so losses of models with one vocabulary are comparable.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import collate
from regard.data.masking import IGNORE_INDEX, Masking
from regard.errors import InputError
from regard.nn.training import evaluation_mode
from regard.text import Tokenizer
from regard.training.recipes.pretraining.row_sampler import FOLLOWS
from regard.training.recipes.pretraining.span_corruption import SpanCorruption
from regard.training.recipes.pretraining.token_stream import TokenStream

Score = dict[str, float]
TOKENS = 1 << 15  # tokens of a forward pass
TRIES = 1000  # consecutive failures after which no more pairs are sampled


def accuracy_score(loss: float, right: int, count: int) -> Score:
    """The mean loss in nats and the accuracy of `count` predictions, of which so many are right."""
    return {"loss": loss / count, "accuracy": right / count, "count": count}


def perplexity_score(loss: float, count: int) -> Score:
    """The mean loss in nats, and the perplexity, of `count` predicted tokens."""
    return {"loss": loss / count, "perplexity": math.exp(min(loss / count, 700.0)), "count": count}


def masked_lm_score(
    model: Any,
    masking: Masking,
    text: TokenStream,
    tokenizer: Tokenizer,
    *,
    length: int = 128,
    rows: int = 2048,
    seed: int = 0,
) -> Score:
    """Mask tokens of the first `rows` rows of running text, each between [CLS] and [SEP], and predict them."""
    assert model.mlm_head is not None
    ids = rows_with_special_tokens(text, tokenizer, length=length, rows=rows)
    # Masked on the CPU, whose random numbers are the same everywhere, and token by token, however training masks.
    single = Masking(masking.special.cpu(), mask=masking.mask, rate=masking.rate, replace=masking.replace)
    masked = single(ids, torch.Generator().manual_seed(seed))
    labels = torch.full((ids.numel(),), IGNORE_INDEX)
    labels[masked.positions] = masked.targets
    device = next(model.parameters()).device
    total, right, count = 0.0, 0, 0
    size = max(TOKENS // length, 1)
    with evaluation_mode(model):
        for part, part_labels in zip(torch.split(masked.ids, size), torch.split(labels, size * length), strict=True):
            positions = (part_labels != IGNORE_INDEX).nonzero().squeeze(1)
            targets = part_labels[positions].to(device)
            logits = model.mlm_head(model(part.to(device), output_positions=positions.to(device))).float()
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            right += int((logits.argmax(-1) == targets).sum())
            count += len(targets)
    if not count:
        raise InputError("the text to evaluate on has no token that could be masked: all are special; use another text")
    return accuracy_score(total, right, count)


def sample_tokens(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Sample a token from each row of logits (n, V), by the maximum of the logits with Gumbel noise; (n,)."""
    noise = torch.empty_like(logits, dtype=torch.float32).exponential_(generator=generator)
    return (logits.float() - noise.log()).argmax(-1)


def replace_tokens(ids: Tensor, positions: Tensor, targets: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Put samples at the masked positions of ids; return the new ids and where they differ from the original text.

    Positions whose target is ignored were not masked and stay as they are.
    """
    flat = ids.flatten()
    selected = targets != IGNORE_INDEX
    new = flat.index_copy(0, positions, torch.where(selected, samples.to(flat.dtype), flat[positions]))
    is_replaced = torch.zeros_like(flat, dtype=torch.bool)
    is_replaced = is_replaced.index_copy(0, positions, selected & (samples != targets))
    return new.view_as(ids), is_replaced.view_as(ids)


def replaced_token_score(
    model: Any,
    masking: Masking,
    text: TokenStream,
    tokenizer: Tokenizer,
    *,
    length: int = 128,
    rows: int = 2048,
    seed: int = 0,
) -> Score:
    """Replace masked tokens of held-out text by samples of an ELECTRA's generator, and let its discriminator judge all
    tokens."""
    ids = rows_with_special_tokens(text, tokenizer, length=length, rows=rows)
    device = next(model.parameters()).device
    cpu = torch.Generator().manual_seed(seed)
    total, right, count = 0.0, 0, 0
    with evaluation_mode(model):
        for part in torch.split(ids, max(TOKENS // length, 1)):
            masked = masking(part, cpu)
            positions = masked.positions.to(device)
            logits = model.generator.mlm_head(model.generator(masked.ids.to(device), output_positions=positions))
            samples = sample_tokens(logits.cpu(), cpu)  # on the CPU, whose random numbers are the same everywhere
            replaced, is_replaced = replace_tokens(masked.ids, masked.positions, masked.targets, samples)
            discriminator = model.discriminator
            found = discriminator.discriminator(discriminator(replaced.to(device))).float().cpu()
            total += F.binary_cross_entropy_with_logits(found, is_replaced.float(), reduction="sum").item()
            right += int(((found > 0) == is_replaced).sum())
            count += part.numel()
    return accuracy_score(total, right, count)


def rows_with_special_tokens(text: TokenStream, tokenizer: Tokenizer, *, length: int, rows: int) -> Tensor:
    """Running text from its beginning, `length` tokens a row with [CLS] and [SEP]; (rows, length)."""
    assert tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None
    cut = chunks(text, length=length - 2, rows=rows)
    return F.pad(F.pad(cut, (1, 0), value=tokenizer.cls_token_id), (0, 1), value=tokenizer.sep_token_id)


def chunks(text: TokenStream, *, length: int, rows: int) -> Tensor:
    """Running text from its beginning, `length` tokens a row; (rows, length)."""
    if text.tokens < length:
        raise InputError(
            f"the text to evaluate on has {text.tokens} tokens, too few for one row of {length}: use more text, "
            "or shorter rows"
        )
    rows = min(rows, text.tokens // length)
    beginning = np.concatenate([piece[: rows * length] for piece in text.pieces])[: rows * length]
    return torch.from_numpy(beginning.astype(np.int64)).view(rows, length)


def next_sentence_score(
    model: Any, text: TokenStream, tokenizer: Tokenizer, *, length: int = 128, count: int = 2000, seed: int = 0
) -> Score:
    """Next-sentence prediction on `count` pairs."""
    assert model.pooler is not None and model.nsp_head is not None
    device = next(model.parameters()).device
    pairs = next_sentence_pairs(text, tokenizer, length=length, count=count, seed=seed)
    total, right = 0.0, 0
    size = max(TOKENS // length, 1)
    with evaluation_mode(model):
        for at in range(0, len(pairs), size):
            part = pairs[at : at + size]
            batch = collate([ids for ids, _, _ in part], packed=False, padding=tokenizer.pad_token_id or 0).to(device)
            second = torch.tensor([first for _, first, _ in part], device=device)
            segments = (torch.arange(batch.ids.shape[1], device=device) >= second[:, None]).long()
            logits = model.nsp_head(model.pooler(model(batch.ids, batch.layout, segments), batch.layout)).float()
            targets = torch.tensor([label for _, _, label in part], device=device)
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            right += int((logits.argmax(-1) == targets).sum())
    return accuracy_score(total, right, len(pairs))


def next_sentence_pairs(
    text: TokenStream, tokenizer: Tokenizer, *, length: int = 128, count: int = 2000, seed: int = 0
) -> list[tuple[list[int], int, int]]:
    """Pairs of whole sentences, at most `length` tokens with special ones: ids, start of B, and label.

    A has a random number of sentences; B follows it in its document, or starts at a random sentence of another one.
    True and false pairs alternate. There are fewer than `count` if the text has hardly any pairs of that length.
    """
    assert tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None
    generator = np.random.default_rng(seed)
    sizes, room = np.diff(text.sentences), length - 3
    documents = np.searchsorted(text.sentences, text.documents)  # the index of the first sentence of each
    home = np.repeat(np.arange(len(documents) - 1), np.diff(documents))  # the document of each sentence
    begins = np.flatnonzero(home[:-1] == home[1:])  # sentences with a successor in their document
    found: list[tuple[list[int], int, int]] = []
    failed = 0 if len(begins) and len(documents) > 2 else TRIES
    while len(found) < count and failed < TRIES:
        failed += 1
        first = int(begins[generator.integers(len(begins))])
        end = documents[home[first] + 1]
        fit = int(np.searchsorted(np.cumsum(sizes[first : end - 1]), room // 2, side="right"))
        second = middle = first + int(generator.integers(1, max(fit, 1) + 1))
        label = len(found) % 2
        if label != FOLLOWS:
            second = int(generator.integers(len(sizes)))
            end = documents[home[second] + 1]
        left = room - int(sizes[first:middle].sum())
        stop = second + int(np.searchsorted(np.cumsum(sizes[second:end]), left, side="right"))
        if stop == second or (home[first] == home[second]) != (label == FOLLOWS):
            continue
        a = text.read(int(text.sentences[first]), int(text.sentences[middle])).tolist()
        b = text.read(int(text.sentences[second]), int(text.sentences[stop])).tolist()
        found.append(
            ([tokenizer.cls_token_id, *a, tokenizer.sep_token_id, *b, tokenizer.sep_token_id], len(a) + 2, label)
        )
        failed = 0
    if len(found) < min(count, 2):
        raise InputError(
            "the text to evaluate on gives no pairs: they need two documents, and two sentences that fit into "
            f"{room} tokens; use more text, or longer rows"
        )
    return found if len(found) == count else found[: len(found) - len(found) % 2]


def next_token_score(model: Any, text: TokenStream, *, length: int, rows: int = 512) -> Score:
    """The loss of each token of the first `rows` rows of running text, except the first of each row."""
    length = min(length, text.tokens)
    if length < 2:
        raise InputError(f"the text to evaluate on has {text.tokens} tokens, and no next one; use more text")
    device = next(model.parameters()).device
    ids = chunks(text, length=length, rows=rows)
    total = 0.0
    with evaluation_mode(model):
        for part in torch.split(ids, max(TOKENS // 4 // length, 1)):
            part = part.to(device)
            logits = model.logits(model(part[:, :-1])).float()
            total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    count = ids[:, 1:].numel()
    return perplexity_score(total, count)


def bidirectional_scores(
    model: Any, text: TokenStream, tokenizer: Tokenizer, *, length: int, rows: int = 512
) -> tuple[Score, Score]:
    """The loss of each token of the first `rows` rows, predicted from the tokens before it and from those after it.

    Each row is between [CLS] and [SEP], which are not predicted.
    """
    device = next(model.parameters()).device
    ids = rows_with_special_tokens(text, tokenizer, length=length, rows=rows)
    count = ids[:, 1:-1].numel()
    totals = [0.0, 0.0]
    with evaluation_mode(model):
        for part in torch.split(ids, max(TOKENS // 4 // length, 1)):
            part = part.to(device)
            ahead, back = model.logits(model(part))
            for way, logits in enumerate((ahead[:, :-2], back[:, 2:])):
                targets = part[:, 1:-1].flatten()
                totals[way] += F.cross_entropy(logits.float().flatten(0, 1), targets, reduction="sum").item()
    return perplexity_score(totals[0], count), perplexity_score(totals[1], count)


def span_score(model: Any, corruption: SpanCorruption, text: TokenStream, *, rows: int = 512, seed: int = 0) -> Score:
    """Drop spans of the first `rows` rows of running text and predict the targets, with sentinels and end."""
    device = next(model.parameters()).device
    ids = chunks(text, length=corruption.sizes.tokens, rows=rows)
    corrupted = corruption(ids, torch.Generator().manual_seed(seed))
    total = 0.0
    size = max(TOKENS // 4 // corruption.sizes.inputs, 1)
    with evaluation_mode(model):
        for given, targets in zip(
            torch.split(corrupted.inputs, size), torch.split(corrupted.targets, size), strict=True
        ):
            decoder_ids = F.pad(targets[:, :-1], (1, 0), value=model.begin)
            logits = model.logits(model(given.to(device), decoder_ids.to(device))).float()
            total += F.cross_entropy(logits.flatten(0, 1), targets.flatten().to(device), reduction="sum").item()
    return perplexity_score(total, corrupted.targets.numel())
