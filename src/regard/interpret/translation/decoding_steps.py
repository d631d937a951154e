"""A text translated once more, step by step: the word of every step, what else was likely, and where the model looked.

Knows translators and what is recorded of them. Knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checkpoints.ready import evaluation_mode
from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.decoder import as_decoder
from regard.inference.generation.text_stream import token_text
from regard.inference.translation import Translation, Translator
from regard.inference.translation.model import TranslationModel
from regard.inference.translation.subwords import word_indices
from regard.interpret.translation.cross_attention import CrossAttention, CrossAttentionRecord, cross_attention_of
from regard.models import Seq2Seq
from regard.nn.recording import record
from regard.nn.tape import Tape
from regard.text import Tokenizer

__all__ = [
    "LIKELIEST",
    "MAX_SOURCE_TOKENS",
    "DecodedHypothesis",
    "DecodingStep",
    "SubwordTokens",
    "TranslationSteps",
    "replay_translations",
    "source_ids",
    "translate_in_steps",
]

LIKELIEST = 5  # tokens of a step that are listed
MAX_SOURCE_TOKENS = 200  # tokens of a source: somebody looks at each of them


@dataclass(frozen=True)
class SubwordTokens:
    """`tokens` of a text, the end token among them where it was said; `places` are their words' numbers, without it."""

    tokens: tuple[str, ...]
    words: tuple[str, ...]
    places: tuple[int, ...]

    def document(self) -> dict[str, object]:
        return {"tokens": list(self.tokens), "words": list(self.words), "places": list(self.places)}


@dataclass(frozen=True)
class DecodingStep:
    """One step: the token that was said, how likely it was, and the likeliest tokens there, best first."""

    token: str
    probability: float
    likeliest: tuple[tuple[str, float], ...]

    def document(self) -> dict[str, object]:
        likeliest = [{"token": token, "probability": probability} for token, probability in self.likeliest]
        return {"token": self.token, "probability": self.probability, "likeliest": likeliest}


@dataclass(frozen=True, eq=False)
class DecodedHypothesis:
    """One hypothesis of the beam, step by step; `looks` is None where the model has no attention."""

    translation: Translation
    pieces: SubwordTokens
    steps: tuple[DecodingStep, ...]
    looks: CrossAttention | None

    def document(self) -> dict[str, object]:
        one = self.translation
        return {
            "text": one.text,
            "score": one.score,
            "log_probability": one.log_probability,
            "finished": one.finished,
            "pieces": self.pieces.document(),
            "steps": [step.document() for step in self.steps],
        }


@dataclass(frozen=True, eq=False)
class TranslationSteps:
    """A text and its hypotheses, best first; `seen` is None where the model has no attention."""

    text: str
    translator: Translator
    source: SubwordTokens
    hypotheses: tuple[DecodedHypothesis, ...]
    seen: CrossAttentionRecord | None

    def document(self) -> dict[str, object]:
        """Words and probabilities, for JSON; the numbers of attention are the fields of `seen` and of each `looks`."""
        return {
            "text": self.text,
            "source": self.source.document(),
            "hypotheses": [told.document() for told in self.hypotheses],
        }


def translate_in_steps(translator: Translator, text: str, *, beam: Beam | None = None) -> TranslationSteps:
    """Translate a text and look at every step of its best `beam.nbest` hypotheses, or of the greedy one."""
    source_ids(translator, text)
    return replay_translations(translator, text, translator.translate([text], beam=beam)[0])


def replay_translations(translator: Translator, text: str, found: Sequence[Translation]) -> TranslationSteps:
    """The same for translations that `translator.translate` found of the text: each is said once more."""
    model, subwords = translator.model, translator.subwords
    source = source_ids(translator, text)
    told = [[*one.ids, *([subwords.end] if one.finished else [])] for one in found]
    logits, tape = _said_again(model, source, told)
    attends = not isinstance(model, Seq2Seq) or model.decoder.cross is not None
    with torch.inference_mode():
        seen = cross_attention_of(tape, steps=[len(ids) for ids in told]) if attends else None
    hypotheses = [
        DecodedHypothesis(
            translation=one,
            pieces=_pieces(subwords.target, ids, ended=one.finished),
            steps=_steps(subwords.target, ids, logits[row]),
            looks=seen.looks[row] if seen else None,
        )
        for row, (one, ids) in enumerate(zip(found, told, strict=True))
    ]
    return TranslationSteps(text, translator, _pieces(subwords.source, source, ended=True), tuple(hypotheses), seen)


def source_ids(translator: Translator, text: str) -> list[int]:
    """The ids that the model reads of a text; InputError where there are none or too many."""
    if not text.strip():
        raise InputError("the text is empty; expected a sentence to translate")
    ids = translator.subwords.encode_sources([text])[0]
    if len(ids) > MAX_SOURCE_TOKENS:
        raise InputError(
            f"the text has {len(ids):,} tokens, and every step looks at each; expected at most {MAX_SOURCE_TOKENS}: "
            "give one sentence, or translate the text with `regard translate`"
        )
    return ids


def _said_again(model: TranslationModel, source: list[int], told: list[list[int]]) -> tuple[Tensor, Tape]:
    """Say all hypotheses side by side, a token a step as the search does: the logits (B, T, V), and what was seen.

    A hypothesis that is over repeats its last token until the others are; no row minds another.
    """
    speaker, device = as_decoder(model), next(model.parameters()).device
    with evaluation_mode(model), record(model) as tape:
        logits, state = speaker.start(torch.tensor([source] * len(told), device=device))
        found = [logits]
        for step in range(max(map(len, told)) - 1):
            tokens = torch.tensor([ids[min(step, len(ids) - 1)] for ids in told], device=device)
            logits, state = speaker.step(tokens, state)
            found.append(logits)
    return torch.stack(found, dim=1).float().cpu(), tape


def _steps(tokenizer: Tokenizer, ids: Sequence[int], logits: Tensor) -> tuple[DecodingStep, ...]:
    found = []
    names = _named(tokenizer, ids)
    for name, number, row in zip(names, ids, logits, strict=False):  # behind a short hypothesis rows say nothing
        shares = row.double().softmax(-1)
        best = shares.topk(min(LIKELIEST, len(shares)))
        likeliest = zip(_named(tokenizer, best.indices.tolist()), best.values.tolist(), strict=True)
        found.append(DecodingStep(name, float(shares[number]), tuple(likeliest)))
    return tuple(found)


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], *, ended: bool) -> SubwordTokens:
    plain = ids[:-1] if ended else ids
    words = tokenizer.decode(plain).split()
    return SubwordTokens(_named(tokenizer, ids), tuple(words), tuple(word_indices(tokenizer, plain)))


def _named(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(token_text(tokenizer, number) for number in ids)
