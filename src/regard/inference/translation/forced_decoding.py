"""Forced decoding: a given translation is fed to the decoder, which reports its log-probability and its alignment.

[forced] = force_targets(load_translator("regard-fr-en"), "Je suis étudiant.", ["I am a student."])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError
from regard.inference.generation.text_generator import token_text
from regard.inference.translation.translator import Alignment, Translation, Translator, has_attention
from regard.nn.masks import Padded
from regard.nn.training import evaluation_mode
from regard.render.terminal import probability_table, terminal_heat_map

MAX_TARGETS = 10  # of one text
MAX_TOKENS = 200  # of a text or a target


@dataclass(frozen=True)
class TokenLogProbability:
    token: str
    log_probability: float


@dataclass(frozen=True)
class ForcedTarget:
    """A given translation, whose score is its mean log-probability, and the log-probability of each token and the end.

    `alignment` has the attention weights between words; `hard[j]` is the source word with the largest weight for target
    word j. Both are None if the model has no attention.
    """

    translation: Translation
    tokens: list[TokenLogProbability]
    alignment: Alignment | None
    hard: list[int] | None

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        given = self.translation
        yield f"{given.text}\n"
        yield (
            f"log-probability {given.log_probability:.4f}, {len(self.tokens)} tokens, "
            f"perplexity {math.exp(-given.score):.3f}\n"
        )
        yield from probability_table([(one.token, math.exp(one.log_probability)) for one in self.tokens])
        if self.alignment is None or self.hard is None:
            yield "\nThis model has no attention, so there is no alignment."
            return
        source, target = self.alignment.source, self.alignment.target
        yield "\nSoft alignment, percent; columns: source, rows: translation\n"
        rows = [f"  {word}" for word in target]
        yield terminal_heat_map(self.alignment.weights, rows, source).plain
        yield "\nHard alignment: " + ", ".join(
            f"{word} ← {source[index]}" for word, index in zip(target, self.hard, strict=True)
        )


def force_targets(translator: Translator, text: str, targets: Sequence[str]) -> list[ForcedTarget]:
    """Decode one text with each target given, so that a target's probability and alignment do not depend on a search.

    InputError if the text or a target has no words or too many tokens, and for too many targets.
    """
    if len(targets) > MAX_TARGETS:
        raise InputError(f"{len(targets)} targets for one text; expected at most {MAX_TARGETS}")
    source = translator.subwords.encode_sources([text])[0]
    _check_length("text", text, source)
    encoded = [translator.encode_translation(target) for target in targets]
    for target, ids in zip(targets, encoded, strict=True):
        _check_length("target", target, ids)
    return [_force(translator, text, source, ids) for ids in encoded]


def _check_length(name: str, text: str, ids: Sequence[int]) -> None:
    if not text.strip():
        raise InputError(f"the {name} is empty; expected a sentence")
    if len(ids) > MAX_TOKENS:
        raise InputError(f"the {name} has {len(ids):,} tokens; expected at most {MAX_TOKENS}: give one sentence")


def _force(translator: Translator, text: str, source: Sequence[int], ids: Sequence[int]) -> ForcedTarget:
    subwords = translator.subwords
    values = _token_log_probabilities(translator, source, ids).tolist()
    tokens = [token_text(subwords.target, token) for token in (*ids, subwords.end)]
    alignment = translator.align(text, ids) if has_attention(translator.model) else None
    total = sum(values)
    return ForcedTarget(
        translation=Translation(subwords.decode(ids), tuple(ids), total, total / len(values), finished=True),
        tokens=[TokenLogProbability(*pair) for pair in zip(tokens, values, strict=True)],
        alignment=alignment,
        hard=None if alignment is None else alignment.hard(),
    )


def _token_log_probabilities(translator: Translator, source: Sequence[int], ids: Sequence[int]) -> Tensor:
    """The log-probability of each target token and of the end token, given those before it."""
    device = translator.device
    target = torch.tensor([[*ids, translator.subwords.end]], device=device)
    with evaluation_mode(translator.model), torch.inference_mode():
        logits = translator.model.teacher_forced_logits(torch.tensor([source], device=device), Padded(), target)
    log_probabilities: Tensor = logits[0].double().log_softmax(-1)
    return log_probabilities.gather(1, target[0, :, None])[:, 0].cpu()
