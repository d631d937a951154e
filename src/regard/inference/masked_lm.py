"""Masked language models: fill in the blanks of a text, pseudo-likelihoods, and next-sentence prediction.

A blank by itself is scored while all others are masked. Together, blanks are filled from left to right, each given the
words before it and masks after it; the probability of an assignment is the product of the steps. Probabilities are
over the full vocabulary.

A word that is several pieces gets as many masks in place of its blank, which are filled in the same way. Its
probability is that of these pieces in this many masks: compare words with the same number of pieces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.data.batch import collate, in_groups
from regard.errors import InputError
from regard.inference.causal_lm import BATCH_TOKENS
from regard.known import DEFAULT_MODEL
from regard.models.family import can, family_name, family_of
from regard.nn.masks import Packed
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.render.terminal import probability_table
from regard.text import Tokenizer

# An underscore that touches a letter, a digit or a further underscore belongs to a word: snake_case, __init__.
BLANK_PATTERN = r"(?<!\w)_+(?!\w)|\[MASK\]"
ENUMERATED = 256  # maximum number of partial assignments that are all extended
LINE = 60  # characters; a longer text is not repeated in the table of assignments
BEAM = 20  # if there are more, the number of likeliest ones to extend
Word = tuple[int, ...]  # the ids of its pieces


@dataclass(frozen=True, eq=False)
class MaskedLM:
    """A model with a masked-LM head, its tokenizer and the id of the mask token."""

    model: Any
    head: Any
    tokenizer: Tokenizer
    mask_id: int

    @classmethod
    def from_model(cls, model: nn.Module, tokenizer: Tokenizer | None, *, purpose: str) -> MaskedLM:
        """InputError if the model has no such head; `purpose` opens the message: "filling in blanks"."""
        tokenizer = require_tokenizer(model, tokenizer)
        if not can(model, "masked-lm"):
            family = family_of(model)
            if family is not None and family.can("masked-lm"):
                remedy = (
                    ": it was tuned for a task, which has a head of its own, or its folder holds the encoder alone; "
                    f"take the pretrained model it was made from, or another with that head, such as {DEFAULT_MODEL}"
                )
            else:
                remedy = (
                    f"; take a BERT, DistilBERT or RoBERTa that was pretrained on masked words, such as {DEFAULT_MODEL}"
                )
            raise InputError(
                f"{purpose} needs a masked-word head, and this {family_name(model)} model has none{remedy}"
            )
        if tokenizer.mask_token_id is None:
            raise InputError(f"{purpose} needs a mask token, and this {family_name(model)} model's tokenizer has none")
        return cls(model, model.mlm_head, tokenizer, tokenizer.mask_token_id)

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of a text, special tokens included."""
        limit: int = self.model.config.max_position_embeddings
        return limit

    @property
    def batch_tokens(self) -> int:
        return BATCH_TOKENS[self.head.weight.device.type]

    def logits(self, rows: Sequence[Sequence[int]], positions: Sequence[tuple[int, int]]) -> Tensor:
        """The logits (n, V) at `positions`, each a row and a token index; all rows are one packed batch."""
        batch = collate(rows).to(self.head.weight.device)
        assert isinstance(batch.layout, Packed)
        starts = batch.layout.starts.tolist()
        indices = torch.tensor([starts[row] + token for row, token in positions], device=batch.ids.device)
        logits: Tensor = self.head(self.model(batch.ids, batch.layout, output_positions=indices))
        return logits.float()


@dataclass(frozen=True)
class Candidate:
    """A token for one blank, as the vocabulary spells it."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class BlankCandidate(Candidate):
    """A word for one blank. `ids` are its pieces, of which `id` is the first; `token` spells them with spaces."""

    ids: list[int]

    @property
    def mean_log_probability(self) -> float:
        """Per piece, in nats."""
        return math.log(self.probability) / len(self.ids) if self.probability else -math.inf


@dataclass(frozen=True)
class Assignment:
    """A word for every blank, and the text with them in position; `ids` are the pieces of all words."""

    tokens: list[str]
    ids: list[int]
    text: str
    probability: float


class FillResult(Result):
    """`masks` has a list for each blank, `joint` the assignments; likeliest first. For one blank they are the same.

    `exact`: no assignment that is not listed has a higher probability; False: the search may have missed one.
    """

    page_view: ClassVar[str | None] = "fill"

    model: str
    text: str
    masks: list[list[BlankCandidate]]
    joint: list[Assignment]
    exact: bool

    def to_text(self) -> str:
        several = len(self.masks) > 1
        parts = [self.text]
        for number, candidates in enumerate(self.masks, 1):
            rows = [(candidate.token, candidate.probability) for candidate in candidates]
            if any(len(candidate.ids) > 1 for candidate in candidates):
                rows = [
                    (f"{one.token}  {one.mean_log_probability:.2f} per piece", one.probability) for one in candidates
                ]
            parts += [f"\nblank {number}" if several else "", *probability_table(rows)]
        if several:
            short = len(self.text) <= LINE and self.text.isprintable()
            rows = [(one.text if short else " ".join(one.tokens), one.probability) for one in self.joint]
            parts += ["\ntogether", *probability_table(rows)]
        return "\n".join(parts)

    def to_table(self) -> Table:
        found = [(blank, one) for blank, several in enumerate(self.masks) for one in several]
        return ("blank", "token", "id", "probability", "pieces"), [
            (blank, one.token, one.id, one.probability, len(one.ids)) for blank, one in found
        ]


def fill_blanks(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    text: str,
    *,
    top: int = 10,
    targets: Sequence[str] | None = None,
    name: str = "",
) -> FillResult:
    """The likeliest `top` tokens for the blanks of a text, marked by `_` or `[MASK]`, or the given `targets` only.

    All targets are listed, and at least as many assignments.
    """
    if top < 1:
        raise InputError(f"top is {top}; expected the number of candidates to list, at least 1")
    if targets is not None and not targets:
        raise InputError("targets is empty; give at least one word, or None for the whole vocabulary")
    masked_lm = MaskedLM.from_model(model, tokenizer, purpose="filling in blanks")
    marked = find_blanks(text, masked_lm.tokenizer, masked_lm.mask_id)
    if len(marked.ids) > masked_lm.max_length:
        raise InputError(
            f"the text has {len(marked.ids)} tokens with special ones, and the model reads {masked_lm.max_length}; "
            f"shorten it by {len(marked.ids) - masked_lm.max_length}"
        )
    known, pieces = _choices(masked_lm, marked, targets)
    listed = top if targets is None else max(top, len(targets))
    with evaluation_mode(model):
        if pieces is not None:
            masks, joint = _score_words(masked_lm, marked, pieces, listed)
            return FillResult(model=name, text=text, masks=masks, joint=joint, exact=True)
        alone = _scores(masked_lm, [marked.ids], [(0, position) for position in marked.positions])
        masks = [_ranked(masked_lm.tokenizer, row[ids], ids, listed) for row, ids in zip(alone, known, strict=True)]
        joint, exact = _search(masked_lm, marked, known, alone[:1], listed)
    return FillResult(model=name, text=text, masks=masks, joint=joint, exact=exact)


def _choices(
    masked_lm: MaskedLM, marked: TextWithBlanks, targets: Sequence[str] | None
) -> tuple[list[Tensor], list[list[Word]] | None]:
    """The ids that may fill each blank: those with a token (an output layer may be padded), or the targets.

    If a target is several pieces, the pieces of all targets for each blank as well.
    """
    count, device = len(masked_lm.head.weight), masked_lm.head.weight.device
    if targets is None:
        known = torch.tensor([number for number in masked_lm.tokenizer.vocabulary.values() if number < count])
        return [known.to(device)] * len(marked.spans), None
    spaces = [marked.after_space(blank) for blank in range(len(marked.spans))]
    found = {space: target_pieces(targets, masked_lm.tokenizer, after_space=space) for space in set(spaces)}
    pieces = [found[space] for space in spaces]
    single = all(len(word) == 1 for words in pieces for word in words)
    return [torch.tensor([word[0] for word in words], device=device) for words in pieces], None if single else pieces


def _score_words(
    masked_lm: MaskedLM, marked: TextWithBlanks, words: list[list[Word]], listed: int
) -> tuple[list[list[BlankCandidate]], list[Assignment]]:
    """The candidates of each blank alone and all assignments, of words that may be several pieces; likeliest first."""
    count = math.prod(map(len, words))
    if len(words) > 1 and count > ENUMERATED:
        raise InputError(
            f"{len(words[0])} targets in {len(words)} blanks make {count:,} combinations, and with targets of several "
            f"pieces at most {ENUMERATED} are scored; give fewer targets"
        )
    tokenizer, masks = masked_lm.tokenizer, []
    for blank, several in enumerate(words):
        options: list[list[Word | None]] = [
            [None] * blank + [word] + [None] * (len(words) - blank - 1) for word in several
        ]
        scored = zip(several, _log_probabilities(masked_lm, marked, options), strict=True)
        masks.append(
            [
                BlankCandidate(_tokens(tokenizer, word), word[0], math.exp(value), list(word))
                for word, value in sorted(scored, key=lambda one: -one[1])[:listed]
            ]
        )
    assignments = list(product(*words))
    joint = [
        Assignment(
            [_tokens(tokenizer, word) for word in chosen],
            [number for word in chosen for number in word],
            marked.fill(tokenizer, chosen),
            math.exp(value),
        )
        for chosen, value in zip(assignments, _log_probabilities(masked_lm, marked, assignments), strict=True)
    ]
    return masks, sorted(joint, key=lambda one: -one.probability)[:listed]


def _log_probabilities(
    masked_lm: MaskedLM, marked: TextWithBlanks, assignments: Sequence[Sequence[Word | None]]
) -> list[float]:
    """The log-probability of each assignment, whose pieces are filled in from left to right; None stays masked."""
    rows, positions, targets, owners = [], [], [], []
    for owner, assignment in enumerate(assignments):
        row, starts = marked.expand([1 if word is None else len(word) for word in assignment], masked_lm.mask_id)
        if len(row) > masked_lm.max_length:
            raise InputError(
                f"with the pieces of the targets the text has {len(row)} tokens, and the model reads "
                f"{masked_lm.max_length}; shorten it by {len(row) - masked_lm.max_length}"
            )
        for word, at in zip(assignment, starts, strict=True):
            for offset, number in enumerate(word or ()):
                rows.append(list(row))
                positions.append(at + offset)
                targets.append(number)
                owners.append(owner)
                row[at + offset] = number
    totals = [0.0] * len(assignments)
    numbers = iter(range(len(rows)))
    for group in in_groups(rows, max(1, masked_lm.batch_tokens // max(map(len, rows)))):
        indices = [next(numbers) for _ in group]
        scores = _scores(masked_lm, group, [(row, positions[index]) for row, index in enumerate(indices)])
        for values, index in zip(scores, indices, strict=True):
            totals[owners[index]] += float(values[targets[index]])
    return totals


def _tokens(tokenizer: Tokenizer, word: Word) -> str:
    return " ".join(map(tokenizer.token, word))


def _scores(masked_lm: MaskedLM, rows: Sequence[Sequence[int]], positions: Sequence[tuple[int, int]]) -> Tensor:
    """Log-probabilities (n, V); float64, so that products of many keep their order."""
    return masked_lm.logits(rows, positions).log_softmax(-1).double()


def _ranked(tokenizer: Tokenizer, scores: Tensor, ids: Tensor, listed: int) -> list[BlankCandidate]:
    best = scores.topk(min(listed, len(ids)))
    token_ids = ids[best.indices].tolist()
    values = best.values.exp().tolist()
    return [BlankCandidate(tokenizer.token(n), n, value, [n]) for n, value in zip(token_ids, values, strict=True)]


def _search(
    masked_lm: MaskedLM, marked: TextWithBlanks, choices: list[Tensor], first: Tensor, listed: int
) -> tuple[list[Assignment], bool]:
    """The best assignments, and whether they are exact: an assignment is never likelier than its prefix."""
    small = math.prod(len(ids) for ids in choices[:-1]) <= ENUMERATED
    width = ENUMERATED if small else max(BEAM, listed)
    chosen: list[list[int]] = [[]]
    totals = first.new_zeros(1)
    dropped = -math.inf
    for blank, ids in enumerate(choices):
        steps = first[:, ids] if blank == 0 else _next_scores(masked_lm, marked, chosen, ids)
        scores = (totals[:, None] + steps).flatten()
        last = blank == len(choices) - 1
        keep = min(listed if last else width, len(scores))
        best = scores.topk(min(keep + 1, len(scores)))
        if not last and len(scores) > keep:
            dropped = max(dropped, float(best.values[keep]))
        totals = best.values[:keep]
        token_ids = ids.tolist()
        chosen = [[*chosen[at // len(ids)], token_ids[at % len(ids)]] for at in best.indices[:keep].tolist()]
    spelled = masked_lm.tokenizer
    joint = [
        Assignment(
            [spelled.token(n) for n in token_ids], token_ids, marked.fill(spelled, [(n,) for n in token_ids]), value
        )
        for token_ids, value in zip(chosen, totals.exp().tolist(), strict=True)
    ]
    return joint, dropped <= float(totals[-1])


def _next_scores(masked_lm: MaskedLM, marked: TextWithBlanks, chosen: list[list[int]], ids: Tensor) -> Tensor:
    """The scores (n, ids) of the first open blank after each of the partial assignments `chosen`."""
    position = marked.positions[len(chosen[0])]
    rows = []
    for token_ids in chosen:
        row = list(marked.ids)
        for at, number in zip(marked.positions, token_ids, strict=False):  # the rest stays masked
            row[at] = number
        rows.append(row)
    found = []
    for group in in_groups(rows, masked_lm.batch_tokens // len(marked.ids)):
        found.append(_scores(masked_lm, group, [(row, position) for row in range(len(group))])[:, ids])
    return torch.cat(found)


@dataclass(frozen=True)
class TextWithBlanks:
    """A text, the characters [start, end) of each blank, its ids with a mask at each blank, and the mask positions.

    `offsets` are the characters of each token in the text as it was given; special tokens have (0, 0).
    """

    text: str
    spans: list[tuple[int, int]]
    ids: list[int]
    positions: list[int]
    offsets: list[tuple[int, int]]

    def after_space(self, blank: int) -> bool:
        """Whether white space precedes a blank; byte-level tokens include that space."""
        start = self.spans[blank][0]
        return self.text[start - 1 : start].isspace()

    def expand(self, counts: Sequence[int], mask: int) -> tuple[list[int], list[int]]:
        """The ids with so many masks for each blank, and the position of the first of each."""
        ids, starts, end = [], [], 0
        for position, count in zip(self.positions, counts, strict=True):
            ids += self.ids[end:position]
            starts.append(len(ids))
            ids += [mask] * count
            end = position + 1
        return ids + self.ids[end:], starts

    def fill(self, tokenizer: Tokenizer, words: Sequence[Word]) -> str:
        """The text with the pieces of a word for each blank; pieces such as "##ing" join the word before them."""
        written, end = "", 0
        for (start, stop), pieces in zip(self.spans, words, strict=True):
            written += self.text[end:start]
            for number in pieces:
                word, joins = _spelled(tokenizer, number)
                if joins:
                    written = written.rstrip()
                elif written[-1:].isalnum():  # two blanks without a space between them are two words
                    written += " "
                written += word
            end = stop
        return written + self.text[end:]


def find_blanks(text: str, tokenizer: Tokenizer, mask: int) -> TextWithBlanks:
    """Find every `_`, `[MASK]` and mask token of the tokenizer's own, and encode the text with masks there."""
    token = tokenizer.token(mask)
    marks = re.compile(f"{re.escape(token)}|{BLANK_PATTERN}")
    spans = [match.span() for match in marks.finditer(text)]
    if not spans:
        raise InputError(
            f"expected a text with a blank, got {text[:60]!r}; mark it with _ or [MASK], as in "
            "'In winter the fields are _ with snow.'"
        )
    encoding = tokenizer.encode(marks.sub(lambda _: token, text))
    positions = [position for position, number in enumerate(encoding.ids) if number == mask]
    if len(positions) != len(spans):
        raise InputError(
            f"this tokenizer reads {len(spans)} blanks as {len(positions)} mask tokens; "
            f"its files should list {token!r} among the special tokens"
        )
    offsets, blanks, added = [], iter(spans), 0  # characters that the masks before a token have added
    for (start, end), number, special in zip(encoding.offsets, encoding.ids, encoding.special_tokens_mask, strict=True):
        if number == mask:
            offsets.append(next(blanks))
            added += len(token) - (offsets[-1][1] - offsets[-1][0])
        else:
            offsets.append((0, 0) if special else (start - added, end - added))
    return TextWithBlanks(text, spans, encoding.ids, positions, offsets)


def target_pieces(targets: Sequence[str], tokenizer: Tokenizer, *, after_space: bool) -> list[Word]:
    """The ids of each word in a blank, without duplicates; InputError for words that the vocabulary cannot spell."""
    found: dict[Word, None] = {}
    refused = []
    for target in targets:
        pieces = tokenizer.encode(" " + target if after_space else target, add_special_tokens=False)
        number = tokenizer.vocabulary.get(target)
        if len(pieces) != 1 and number is not None and _spelled(tokenizer, number)[0] != target:
            found[(number,)] = None  # a spelling that only the vocabulary has: ##ing
        elif pieces.ids and tokenizer.unk_token_id not in pieces.ids:
            found[tuple(pieces.ids)] = None
        else:
            refused.append(f"{target!r} is {' '.join(pieces.tokens) or 'nothing'}")
    if refused:
        raise InputError(f"the vocabulary cannot spell every target: {'; '.join(refused)}; leave them out")
    return list(found)


def _spelled(tokenizer: Tokenizer, number: int) -> tuple[str, bool]:
    """A token as text, and whether it joins the preceding word, found by decoding it after another word."""
    before = tokenizer.encode("a", add_special_tokens=False).ids
    both = tokenizer.decode([*before, number], skip_special_tokens=False)
    rest = both.removeprefix(tokenizer.decode(before, skip_special_tokens=False))
    return rest.strip(), not rest[:1].isspace()


def pseudo_nll(
    masked_lm: MaskedLM,
    parts: tuple[Sequence[int], Sequence[int], Sequence[int]],
    positions: Sequence[int],
    *,
    length: int,
) -> float:
    """Negative log-likelihood in nats of the tokens at `positions` of a text, each masked alone, as one batch.

    `parts` are the special tokens before the text, its ids, and the special tokens after it. A text with more than
    `length` ids is read in a window with the masked token in its middle, as far as the ends of the text allow.
    """
    before, body, after = parts
    size = min(len(body), length - len(before) - len(after))
    rows, masks = [], []
    for number, position in enumerate(positions):
        start = min(max(0, position - size // 2), len(body) - size)
        row = [*before, *body[start : start + size], *after]
        masks.append((number, len(before) + position - start))
        row[masks[-1][1]] = masked_lm.mask_id
        rows.append(row)
    logits = masked_lm.logits(rows, masks)
    targets = torch.tensor([body[position] for position in positions], device=logits.device)
    return float(F.cross_entropy(logits, targets, reduction="none").double().sum())


class NextSentence(Result):
    """`is_next` is the probability that the second text follows the first; `cut` tokens of the two did not fit."""

    is_next: float
    cut: int = Field(0, exclude=True)

    def to_text(self) -> str:
        return f"{self.is_next:.3%} likely that the second text follows the first"


def predict_next_sentence(model: nn.Module, tokenizer: Tokenizer | None, first: str, second: str) -> NextSentence:
    """How likely `second` follows `first`. If the pair is too long, the longer text is truncated first."""
    tokens = require_tokenizer(model, tokenizer)
    if not can(model, "next-sentence"):
        raise InputError(
            "next-sentence prediction needs a BERT with its pooler and next-sentence head, and this "
            f"{family_name(model)} model has none; use a pretrained one, such as google-bert/bert-base-uncased"
        )
    for name, text in (("first", first), ("second", second)):
        if not text.strip():
            raise InputError(f"expected two texts, but the {name} is empty")
    pair = tokens.encode(first, second, max_length=model.config.max_position_embeddings)
    batch = collate([pair.ids]).to(model.nsp_head.weight.device)
    segments = torch.tensor(pair.segments, device=batch.ids.device)
    with evaluation_mode(model):
        pooled = model.pooler(model(batch.ids, batch.layout, segments), batch.layout)
        probability = model.nsp_head(pooled).float().softmax(-1)[0, 0]
    return NextSentence(is_next=float(probability), cut=pair.num_truncated)
