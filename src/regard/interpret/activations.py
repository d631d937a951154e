"""Corpus search by head: the texts in which one attention head attends most strongly from a token to another.

The score of a text is the largest weight of the head between two tokens that the pattern allows. Special tokens and a
token's attention to itself do not count: most heads rest there. Texts are read in a stream, and only the best are kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from regard.checkpoints.loaded_model import LoadedModel, require_tokenizer
from regard.data.batch import collate, group_by_size, group_by_token_budget
from regard.data.rows import Row
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.events import Progress
from regard.interpret.attention.maps import display_token
from regard.models.family import can, describe_model, family_name
from regard.nn.recording import check_head, check_layer, record
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table, round_floats
from regard.text import Encoding
from regard.wording import count_of, excerpt, truncation_note

MAX_TOKENS = 256  # of one text; longer ones are truncated
BATCH_TOKENS = 2048
CHUNK_TEXTS = 64  # texts that are encoded and compared at a time
CHUNK_CHARACTERS = 1 << 18
BINS = 20  # of the histogram of scores
SNIPPET = 60  # characters of a text in the terminal

HeadPattern = Literal["any", "previous", "next", "same"]
PATTERN_HELP: dict[str, str] = {
    "any": "any other token",
    "previous": "the token before",
    "next": "the token after",
    "same": "another occurrence of the same token",
}


class ActivatingText(BaseModel):
    """A text with its strongest pair: token `query` attends to token `key` with `weight`, its score. `weights` is the
    whole row of the map: where `query` attends. `line` is the line of the file, or the number of the text from 1."""

    line: int
    text: str
    tokens: list[str]
    special: list[bool]
    query: int
    key: int
    weight: float
    weights: list[float]


class HeadActivations(Result):
    """The texts that activate a head most, the strongest first.

    `read` texts were read, of which `scored` have a pair of tokens that the pattern allows. `histogram` counts their
    scores in equal bins from 0 to 1, and `mean` is their mean.
    """

    page_view: ClassVar[str | None] = "activations"

    model: str
    family: str
    layer: int
    head: int
    pattern: HeadPattern
    min_distance: int
    read: int
    scored: int
    truncated: int
    mean: float
    histogram: list[int]
    texts: list[ActivatingText]
    notes: list[str]

    def to_text(self) -> str:
        where = f"layer {self.layer}, head {self.head} of {self.model or self.family}"
        lines = [
            f"{where} over {count_of(self.read, 'text')}: the largest attention to {PATTERN_HELP[self.pattern]}",
            f"mean of {count_of(self.scored, 'text')}: {self.mean:.3f}",
            "",
            f"  {'weight':>6}  {'line':>7}  tokens and text",
        ]
        for one in self.texts:
            pair = f"{one.tokens[one.query].strip()} -> {one.tokens[one.key].strip()}"
            lines.append(f"  {one.weight:6.3f}  {one.line:7,}  {escape_controls(pair)}")
            lines.append(f"{'':19}{escape_controls(excerpt(one.text, SNIPPET))}")
        return "\n".join(lines)

    def to_table(self) -> Table:
        return ["line", "text", "weight", "query", "query_token", "key", "key_token"], [
            [one.line, one.text, one.weight, one.query, one.tokens[one.query], one.key, one.tokens[one.key]]
            for one in self.texts
        ]

    def view_data(self) -> dict[str, Any]:
        return round_floats(self.to_dict())


def allowed_pairs(encoding: Encoding, pattern: HeadPattern, min_distance: int = 1) -> NDArray[np.bool_]:
    """Which weights of a map (T, T) count: between two different tokens that are not special, as the pattern says."""
    word = ~np.array(encoding.special_tokens_mask, dtype=bool)
    positions = np.arange(len(encoding))
    distance = positions[None] - positions[:, None]  # of the key from the query
    allowed = word[:, None] & word[None] & (np.abs(distance) >= max(1, min_distance))
    if pattern == "same":
        ids = np.array(encoding.ids)
        return np.asarray(allowed & (ids[:, None] == ids[None]))
    offsets = {"previous": -1, "next": 1}
    return np.asarray(allowed & (distance == offsets[pattern])) if pattern in offsets else allowed


def head_activations(
    loaded: LoadedModel,
    rows: Iterable[Row],
    *,
    layer: int,
    head: int,
    top: int = 10,
    pattern: HeadPattern = "any",
    min_distance: int = 1,
) -> Generator[Progress, None, HeadActivations]:
    """Score every text and keep the best `top`, in memory that does not grow with the number of texts.

    Layers above `layer`, from 1 (-1 is the last), are not computed. A text that is among the best already is not listed
    again.
    """
    model: Any = loaded.model
    if not (can(model, "text-encoder") or can(model, "causal-lm")):
        raise InputError(
            f"a corpus search by head needs the self-attention of a BERT or a GPT, and this is {describe_model(model)} "
            "model"
        )
    tokens = require_tokenizer(*loaded)
    number = check_layer(layer, model.config.num_hidden_layers)
    check_head(head, model.config.num_attention_heads)
    limit = min(MAX_TOKENS, model.config.max_position_embeddings)
    best: list[tuple[float, int, ActivatingText]] = []  # a heap; of equal scores the earlier text is better
    histogram = np.zeros(BINS, dtype=np.int64)
    read = scored = truncated = 0
    total = 0.0
    for chunk in group_by_size(rows, _size, budget=CHUNK_CHARACTERS, most=CHUNK_TEXTS):
        given = [(row, text) for row in chunk if (text := row.texts[0] or "").strip()]
        encodings = [tokens.encode(text, max_length=limit) for _, text in given]
        truncated += sum(encoding.num_truncated > 0 for encoding in encodings)
        maps = _head_maps(model, encodings, number, head)
        for (row, text), encoding, weights in zip(given, encodings, maps, strict=True):
            allowed = allowed_pairs(encoding, pattern, min_distance)
            if not allowed.any():
                continue
            values = np.where(allowed, weights, -1.0)
            query, key = divmod(int(values.argmax()), len(encoding))
            score = float(values[query, key])
            if score <= 0:  # in a causal model, a pair that only points ahead
                continue
            scored, total = scored + 1, total + score
            histogram[min(BINS - 1, int(score * BINS))] += 1
            if (len(best) == top and (score, -row.number) < best[0][:2]) or any(text == one.text for *_, one in best):
                continue
            activating = ActivatingText(
                line=row.line,
                text=text,
                tokens=[display_token(tokens, number) for number in encoding.ids],
                special=list(encoding.special_tokens_mask),
                query=query,
                key=key,
                weight=score,
                weights=weights[query].tolist(),
            )
            (heapq.heappush if len(best) < top else heapq.heappushpop)(best, (score, -row.number, activating))
        read += len(chunk)
        yield Progress(stage="reading", done=read)
    if not scored:
        found = "there are no texts" if not read else f"none of the {count_of(read, 'text')} has such a pair of tokens"
        raise InputError(
            f"{found}; expected texts in which a token can attend to {PATTERN_HELP[pattern]}"
            + (f" at a distance of at least {min_distance}" if min_distance > 1 else "")
        )
    return HeadActivations(
        model=loaded.name,
        family=family_name(model),
        layer=number,
        head=head,
        pattern=pattern,
        min_distance=min_distance,
        read=read,
        scored=scored,
        truncated=truncated,
        mean=total / scored,
        histogram=histogram.tolist(),
        texts=[one for *_, one in sorted(best, reverse=True)],
        notes=[truncation_note(truncated)] if truncated else [],
    )


def _size(row: Row) -> int:
    return len(row.texts[0] or "") + 1


def _head_maps(model: Any, encodings: Sequence[Encoding], layer: int, head: int) -> list[NDArray[np.float32]]:
    """The map (T, T) of one head for each text; layers above are not computed."""
    maps: dict[int, NDArray[np.float32]] = {}
    device = next(model.parameters()).device
    for group in group_by_token_budget([len(encoding) for encoding in encodings], BATCH_TOKENS):
        batch = collate([encodings[index].ids for index in group]).to(device)
        with evaluation_mode(model), record(model) as tape:
            for state_number, _ in enumerate(model.states(batch.ids, batch.layout)):
                if state_number == layer:
                    break
        (call,) = next(calls for site, calls in tape.calls.items() if site.layer == layer)
        weights = call.weights()[:, head].float().cpu().numpy()
        for row, index in enumerate(group):
            length = len(encodings[index])
            maps[index] = weights[row, :length, :length].copy()
    return [maps[index] for index in range(len(encodings))]
