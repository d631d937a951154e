"""A translation step by step: the token of every step, the likeliest alternatives, and the cross-attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.decoder import as_decoder
from regard.inference.generation.text_generator import token_text
from regard.inference.translation.sentences import CompletenessCount, source_texts
from regard.inference.translation.subwords import Subwords, word_indices
from regard.inference.translation.translator import (
    AlignmentHeads,
    Translation,
    TranslationModel,
    Translator,
    has_attention,
    translator_of,
)
from regard.models.family import can
from regard.nn.attention import Attention, SeparateProjections
from regard.nn.recording import Tape, record
from regard.nn.training import evaluation_mode
from regard.render.page_arrays import Float32Array, base64_size
from regard.render.result import Result
from regard.text import Tokenizer

NUM_LIKELIEST = 5  # tokens listed for each step
MAX_SOURCE_TOKENS = 200
MAX_PAGE_SIZE = 9_000_000  # characters of base64


class CrossAttention(BaseModel):
    """The attention of one hypothesis, for each layer L, head H and step T, over the S states of the encoder.

    At every step the decoder scores each state, takes the softmax of the scores, multiplies each state by its weight
    and sums these to the context. `scores` (L, H, T, S) are those of `query` (L, H, T, D) with each state's key,
    `weights` (L, H, T, S) their softmax, and `context` (L, H, T, E) is the sum of the weighted values.
    """

    query: Float32Array
    scores: Float32Array
    weights: Float32Array
    context: Float32Array


class EncoderStates(BaseModel):
    """What every step of a decoding attends to: the encoder's `states` (S, W) and the `values` (L, H, S, E) of them.

    `values` are None if the heads take the states themselves, as in recurrent models. `scale` multiplies the products
    of queries and keys.
    """

    states: Float32Array
    values: Float32Array | None
    scale: float


def cross_attention_of(tape: Tape, *, steps: list[int]) -> tuple[EncoderStates, list[CrossAttention]]:
    """From the tape of a decoding of several hypotheses of one source; `steps` are their lengths."""
    sites = sorted((site for site in tape.calls if site.kind == "cross"), key=lambda site: site.layer)
    modules = [tape.calls[site][0].attention for site in sites]
    queries, weights = tape.queries("cross", "decoder"), tape.attention("cross", "decoder")
    keys, memory = tape.keys("cross", "decoder"), tape.hidden("encoder")[-1]
    scores = [_scores(*three) for three in zip(modules, queries, keys, strict=True)]
    values = [_values(module, memory) for module in modules]
    contexts = [one.to(value.dtype) @ value for one, value in zip(weights, values, strict=True)]
    arrays = {"query": queries, "scores": scores, "weights": weights, "context": contexts}
    hypotheses = [
        CrossAttention(**{name: _floats([layer[row, :, :count] for layer in part]) for name, part in arrays.items()})
        for row, count in enumerate(steps)
    ]
    uses_states = all(_uses_states(module) for module in modules)
    encoder = EncoderStates(
        states=_floats([memory[0]])[0],
        values=None if uses_states else _floats([value[0] for value in values]),
        scale=modules[0].score_scale(queries[0]),
    )
    return encoder, hypotheses


def _scores(module: Attention, query: Tensor, key: Tensor) -> Tensor:
    scores: Tensor = query @ key.transpose(-2, -1) if module.score is None else module.score(query, key)
    return scores * module.score_scale(query)


def _values(module: Attention, memory: Tensor) -> Tensor:
    """(B, H, S, E)."""
    assert isinstance(module.project, SeparateProjections)
    value: Tensor = module.project.value(memory)
    return value.view(*value.shape[:-1], module.heads, -1).transpose(1, 2)


def _uses_states(module: Attention) -> bool:
    return isinstance(module.project, SeparateProjections) and isinstance(module.project.value, torch.nn.Identity)


def _floats(layers: list[Tensor]) -> NDArray[np.float32]:
    array: NDArray[np.float32] = torch.stack(layers).float().cpu().numpy()
    return array


@dataclass(frozen=True)
class SubwordTokens:
    """The `tokens` of a text, with the end token if there is one, and the word of each token, without the end."""

    tokens: list[str]
    words: list[str]
    word_indices: list[int]


@dataclass(frozen=True)
class TokenProbability:
    token: str
    probability: float


@dataclass(frozen=True)
class DecodingStep:
    """The token of a step, its probability, and the likeliest tokens, best first."""

    token: str
    probability: float
    likeliest: list[TokenProbability]


class DecodedHypothesis(BaseModel):
    """One hypothesis of the beam, step by step; `attention` is None if the model has none."""

    text: str
    score: float
    log_probability: float
    finished: bool
    pieces: SubwordTokens
    steps: list[DecodingStep]
    attention: CrossAttention | None
    translation: Translation = Field(exclude=True)


class TranslatorView(BaseModel):
    name: str
    kind: str
    recurrent: bool  # whether the decoder is; it then has one attention, over the encoder's states themselves
    score: str
    recipe: str | None
    width: int
    layers: int
    heads: int


class AlignmentHeadsView(BaseModel):
    """The heads whose mean defines alignments, and the one of them with the sharpest attention in the first hypothesis:
    its largest weights on the words of the source are the highest."""

    layer: int
    heads: list[int]
    sharpest: int
    description: str


class TranslationSteps(Result):
    """A text and its hypotheses, best first; `encoder` and `alignment_heads` are None if the model has no attention.

    The hypotheses are `forced` if they were given. `time_steps_read` is the number of time steps in which a
    recurrent encoder reads the source, counted in words as in the lectures: "Je suis étudiant" takes steps 1 to 3, and
    "I" is step 4. End tokens are not counted.
    """

    page_view: ClassVar[str | None] = "translation"

    model: TranslatorView
    text: str
    forced: bool = False
    time_steps_read: int = 0
    source: SubwordTokens
    hypotheses: list[DecodedHypothesis]
    encoder: EncoderStates | None
    alignment_heads: AlignmentHeadsView | None
    notes: list[str] = Field(default_factory=list)

    def view_data(self) -> dict[str, object]:
        """The view's data; hypotheses that do not fit on a page are left out, the worst first."""
        if self.encoder is None:
            return self.to_dict()
        room = MAX_PAGE_SIZE - sum(map(_size, (self.encoder.states, self.encoder.values)))
        fitting: list[DecodedHypothesis] = []
        for hypothesis in self.hypotheses:
            room -= sum(_size(array) for _, array in hypothesis.attention or ())
            if room < 0:
                break
            fitting.append(hypothesis)
        if not fitting:
            rows, columns = len(self.hypotheses[0].steps), len(self.source.tokens)
            raise InputError(f"{rows} steps over {columns} tokens are too many for a page; give a shorter text")
        left_out = len(self.hypotheses) - len(fitting)
        note = f"the last {left_out} of {len(self.hypotheses)} translations are left out: they do not fit on a page"
        notes = [*self.notes, note] if left_out else self.notes
        return self.model_copy(update={"hypotheses": fitting, "notes": notes}).to_dict()


def _size(array: NDArray[np.float32] | None) -> int:
    return 0 if array is None else base64_size(4 * array.size)


def translate_in_steps(
    translator: Translator, text: str, *, beam: Beam | None = None, name: str = ""
) -> TranslationSteps:
    """Translate a text and record every step of its best hypotheses, or of the greedy one."""
    source_ids(translator, first_sentence(translator, text))
    return replay_translations(translator, text, translator.translate([text], beam=beam)[0], name=name)


def replay_translations(
    translator: Translator, text: str, translations: Sequence[Translation], *, name: str = "", forced: bool = False
) -> TranslationSteps:
    """Decode translations of the text once more and record every step; `forced`: they were given, not found.

    Of a text of several sentences, which were translated one by one, the steps are those of the first.
    """
    model, subwords = translator.model, translator.subwords
    complete = CompletenessCount()
    complete.add(text, translations[0].sentences)
    notes = [*translator.source_notes(text), *complete.notes(translator.max_length)]
    if len(sentences := translations[0].sentences) > 1:
        notes.append(f"{first_sentence_note(len(sentences))} The whole translation: {translations[0].text}")
        text, translations = source_texts(text, sentences)[0], _first_sentences(translations)
    source = source_ids(translator, text)
    targets = [[*one.ids, *([subwords.end] if one.finished else [])] for one in translations]
    logits, tape = _decode(model, source, targets)
    encoder, attentions = None, [None] * len(targets)
    if has_attention(model):
        with torch.inference_mode():
            encoder, attentions = cross_attention_of(tape, steps=[len(ids) for ids in targets])  # type: ignore[assignment]
    hypotheses = [
        DecodedHypothesis(
            text=one.text,
            score=one.score,
            log_probability=one.log_probability,
            finished=one.finished,
            pieces=_pieces(subwords.target, ids, ended=one.finished),
            steps=_steps(subwords.target, ids, logits[row]),
            attention=attentions[row],
            translation=one,
        )
        for row, (one, ids) in enumerate(zip(translations, targets, strict=True))
    ]
    recurrent = model.config if can(model, "recurrent") else None
    read = _pieces(subwords.source, source, ended=True)
    first = attentions[0]
    layers, num_heads = (0, 0) if first is None else first.weights.shape[:2]
    heads = translator.alignment_heads
    return TranslationSteps(
        notes=notes,
        model=TranslatorView(
            name=name,
            kind="transformer" if recurrent is None else recurrent.cell,
            recurrent=recurrent is not None,
            score="scaled dot" if recurrent is None else recurrent.score,
            recipe=None if recurrent is None else recurrent.recipe,
            width=model.config.hidden_size,
            layers=layers,
            heads=num_heads,
        ),
        text=text,
        forced=forced,
        time_steps_read=0 if recurrent is None else len(read.words),
        source=read,
        hypotheses=hypotheses,
        encoder=encoder,
        alignment_heads=None
        if encoder is None
        else AlignmentHeadsView(
            layer=heads.layer, heads=list(heads.heads), sharpest=_sharpest(first, heads), description=str(heads)
        ),
    )


def first_sentence(translator: Translator, text: str) -> str:
    """What the translator reads first: the first sentence, or the whole text."""
    return [*source_texts(text, translator.split(text)), text][0]


def one_sentence(loaded: LoadedModel, text: str) -> tuple[str, list[str]]:
    """What a view of one run of the model reads: the text, but of a translator's text the first sentence, and a note.

    Read as one, the text would lose sentences: translators are trained on single ones.
    """
    if not isinstance(loaded.tokenizer, Subwords) or not text.strip():
        return text, []
    translator = translator_of(loaded)
    count = len(translator.split(text))
    if count < 2:
        return text, []
    return first_sentence(translator, text), [first_sentence_note(count)]


def first_sentence_note(count: int) -> str:
    return f"The text has {count} sentences or parts, which are translated one by one; this shows number 1."


def _first_sentences(translations: Sequence[Translation]) -> list[Translation]:
    """The different translations of the first sentence."""
    found = {}
    for one in translations:
        first = one.sentences[0]
        text = one.text[slice(*first.target)]
        found[first.ids] = Translation(text, first.ids, first.log_probability, first.score, first.finished, (first,))
    return list(found.values())


def _sharpest(attention: CrossAttention | None, heads: AlignmentHeads) -> int:
    assert attention is not None
    words = attention.weights[heads.layer - 1, list(heads.heads), :, :-1]  # without the end token of the source
    return heads.heads[int(words.max(-1).mean(-1).argmax())]


def source_ids(translator: Translator, text: str) -> list[int]:
    """The ids of a source text; InputError if there are none or too many."""
    if not text.strip():
        raise InputError("the text is empty; expected a sentence to translate")
    ids = translator.subwords.encode_sources([text])[0]
    if len(ids) > MAX_SOURCE_TOKENS:
        raise InputError(
            f"the text has {len(ids):,} tokens, and every step attends to each; expected at most {MAX_SOURCE_TOKENS}: "
            "give one sentence, or translate the text with `regard translate`"
        )
    return ids


def _decode(model: TranslationModel, source: list[int], targets: list[list[int]]) -> tuple[Tensor, Tape]:
    """Decode all hypotheses side by side, one token per step as in beam search: the logits (B, T, V) and the tape.

    A finished hypothesis repeats its last token until all are finished; rows do not affect each other.
    """
    decoder, device = as_decoder(model), next(model.parameters()).device
    with evaluation_mode(model), record(model) as tape:
        logits, state = decoder.start(torch.tensor([source] * len(targets), device=device))
        steps = [logits]
        for step in range(max(map(len, targets)) - 1):
            tokens = torch.tensor([ids[min(step, len(ids) - 1)] for ids in targets], device=device)
            logits, state = decoder.step(tokens, state)
            steps.append(logits)
    return torch.stack(steps, dim=1).float().cpu(), tape


def _steps(tokenizer: Tokenizer, ids: Sequence[int], logits: Tensor) -> list[DecodingStep]:
    steps = []
    for token_id, row in zip(ids, logits, strict=False):  # rows after the end of a short hypothesis mean nothing
        probabilities = row.double().softmax(-1)
        best = probabilities.topk(min(NUM_LIKELIEST, len(probabilities)))
        likeliest = [
            TokenProbability(token_text(tokenizer, one), probability)
            for one, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        steps.append(DecodingStep(token_text(tokenizer, token_id), float(probabilities[token_id]), likeliest))
    return steps


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], *, ended: bool) -> SubwordTokens:
    text_ids = ids[:-1] if ended else ids
    tokens = [token_text(tokenizer, token_id) for token_id in ids]
    return SubwordTokens(tokens, tokenizer.decode(text_ids).split(), list(word_indices(tokenizer, text_ids)))
