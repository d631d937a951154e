"""A census of heads: which known pattern each head of a model follows over many texts, and how sure that is.

A score is the share of a token's attention that falls where a pattern points, on average over the tokens for which it
points anywhere. Chance is the same map read as if the tokens looked at stood elsewhere (for "broad": weights broken at
random). Knows models and texts. Knows nothing of the command line or of how things are drawn.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loading import load
from regard.checkpoints.ready import describe_model, family_name, require_tokenizer
from regard.data.files import open_text
from regard.errors import InputError
from regard.interpret.attention import token_axis as sides
from regard.interpret.attention.recording import record_attention
from regard.interpret.heads import chance
from regard.interpret.heads.patterns import ABOUT, PATTERNS, TokenizedText, predictive_pairs, related_pairs, targets
from regard.interpret.heads.scores import PatternSums
from regard.interpret.heads.texts import LIMIT, TextPairs, read_text_pairs
from regard.known import DEFAULT_MODEL
from regard.models import Bert, Gpt
from regard.text import Encoding, Tokenizer
from regard.wording import amount

__all__ = [
    "HeadCensus",
    "HeadExample",
    "HeadPatterns",
    "PatternScore",
    "head_census",
    "head_census_of_file",
    "read_text_pairs",
    "reproduce_from_file",
    "reproduce_from_lines",
]

LONGEST = 128  # tokens of a text; the rest is cut
LEVEL = 0.05  # a corrected p-value below this is a finding
EXCESS = 0.1  # and so much more of the attention than by chance makes a name
SHOWN = 5  # examples of a head

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PatternScore:
    """One pattern of one head. `score` and `chance` go from 0 to 1; None where no token of the texts had a target.

    `p` is the probability of such a score by chance, `corrected` by Holm for all heads and patterns.
    """

    pattern: str
    tokens: int
    score: float | None
    chance: float | None
    p: float | None
    corrected: float | None

    @property
    def excess(self) -> float:
        return 0.0 if self.score is None or self.chance is None else self.score - self.chance

    @property
    def holds(self) -> bool:
        return self.corrected is not None and self.corrected < LEVEL and self.excess >= EXCESS


@dataclass(frozen=True)
class HeadExample:
    """The token `row` of a text looks at the token `column` with `weights[column]`; `weights` is the whole row."""

    text: int
    row: int
    column: int
    weights: list[float]


@dataclass(frozen=True)
class HeadPatterns:
    """`pattern`: what the head is named after, or None. The examples are of it, or of what comes nearest to one."""

    layer: int
    head: int
    pattern: str | None
    nearest: str
    findings: list[PatternScore]
    examples: list[HeadExample]


@dataclass(frozen=True)
class HeadCensus:
    """Heads by layer, then by number, both from 0. `texts`: the tokens of those that the examples name, by number.

    `left_out` lines were given and not read; of the texts that were read, `cut` had more than `longest` tokens.
    """

    model: str
    family: str
    layers: int
    heads_each: int
    read: int
    heads: list[HeadPatterns]
    texts: dict[int, list[str]]
    left_out: int
    cut: int
    longest: int

    @property
    def counts(self) -> dict[str, int]:
        """How many heads have each pattern."""
        return {name: sum(head.pattern == name for head in self.heads) for name in PATTERNS}

    def notes(self) -> list[str]:
        """What a reader must know of the texts that were not taken whole."""
        found = []
        if self.left_out:
            found.append(f"left out: {amount(self.left_out, 'line')}; regard heads --limit N reads more pairs")
        if self.cut:
            found.append(f"{self.cut:,} of {self.read:,} texts had more than {self.longest} tokens and were cut")
        return found

    def document(self) -> dict[str, object]:
        """What `regard heads --json` prints."""
        return {
            "model": self.model,
            "family": self.family,
            "layers": self.layers,
            "heads_each": self.heads_each,
            "read": self.read,
            "left_out": self.left_out,
            "cut": self.cut,
            "notes": self.notes(),
            "correction": "Holm",
            "level": LEVEL,
            "excess": EXCESS,
            "counts": self.counts,
            "heads": [asdict(head) for head in self.heads],
            "texts": {str(number): tokens for number, tokens in self.texts.items()},
        }

    def payload(self, *, cli: str, python: str) -> dict[str, object]:
        """What the page of this view shows, with the lines that make it again."""
        return {"view": "heads", "about": ABOUT, **self.document(), "cli": cli, "python": python}


def head_census_of_file(
    path: str | os.PathLike[str],
    *,
    model: str = DEFAULT_MODEL,
    limit: int = LIMIT,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> HeadCensus:
    """The census of a model over the first `limit` pairs of texts of a file; see `pairs_of` and `census`."""
    from regard.device import choose_device

    if limit < 1:
        raise InputError(f"limit is {limit}; expected the number of texts to read, at least 1")
    with open_text(path) as lines:
        texts = read_text_pairs(lines, limit=limit)
    return head_census(*load(model, device=choose_device(device)), texts, name=model, seed=seed, progress=progress)


def reproduce_from_file(path: str, *, model: str, limit: int, seed: int) -> dict[str, str]:
    """The command and the Python that take the census of a file once more."""
    options = ["--text", path, "--model", model, "--limit", str(limit), "--seed", str(seed)]
    python = (
        "from regard.interpret.heads.census import head_census_of_file\n"
        f"head_census_of_file({path!r}, model={model!r}, limit={limit}, seed={seed}).document()"
    )
    return {"cli": shlex.join(["regard", "heads", *options]), "python": python}


def reproduce_from_lines(lines: Sequence[str], *, model: str) -> dict[str, str]:
    """The same for lines that are in no file."""
    told = shlex.join(["printf", "%s\\n", *lines])
    python = (
        "import regard\nfrom regard.interpret.heads.census import head_census, read_text_pairs\n"
        f"head_census(*regard.load({model!r}), read_text_pairs({list(lines)!r}), name={model!r}).document()"
    )
    return {"cli": f"{told} | {shlex.join(['regard', 'heads', '--text', '-', '--model', model])}", "python": python}


def head_census(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    texts: Sequence[tuple[str, str | None]],
    *,
    name: str = "",
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadCensus:
    """Score every head for every pattern over the texts. A GPT, which reads no pairs, reads each text by itself.

    Texts from `pairs_of` bring with them how many lines it left out.
    """
    if not isinstance(model, Bert | Gpt):
        raise InputError(f"a census needs a BERT or a GPT, and this is {describe_model(model)} model")
    tokens = require_tokenizer(model, tokenizer)
    causal = isinstance(model, Gpt)
    if not texts:
        raise InputError("expected at least one text")
    given = [(text, None) for pair in texts for text in pair if text] if causal else list(texts)
    longest = min(LONGEST, model.config.max_position_embeddings)
    encoded = [tokens.encode(a, b, max_length=longest) for a, b in given]
    lines = [_line(tokens, one) for one in encoded]
    vectors: NDArray[np.float32] = model.embedding.tokens.weight.detach().float().cpu().numpy()
    related = related_pairs({number for line in lines for number in line.ids}, vectors)
    predictive = predictive_pairs(lines)
    random = np.random.default_rng(seed)
    sums = PatternSums(model.config.num_hidden_layers * model.config.num_attention_heads, shown=SHOWN)
    for number, ((a, b), line) in enumerate(zip(given, lines, strict=True)):
        found = record_attention(model, tokens, a, b, max_tokens=LONGEST).map()
        weights = found.weights.reshape(-1, len(line.ids), len(line.ids))
        sums.add(number, line, weights, targets(line, related, predictive, causal=causal), random, causal=causal)
        if progress is not None:
            progress(number + 1, len(given))
    heads = _heads(sums, model.config.num_attention_heads)
    shown = sorted({example.text for head in heads for example in head.examples})
    return HeadCensus(
        model=name,
        family=family_name(model),
        layers=model.config.num_hidden_layers,
        heads_each=model.config.num_attention_heads,
        read=len(lines),
        heads=heads,
        texts={number: list(lines[number].tokens) for number in shown},
        left_out=texts.left_out if isinstance(texts, TextPairs) else 0,
        cut=sum(one.cut > 0 for one in encoded),
        longest=longest,
    )


def _line(tokenizer: Tokenizer, encoded: Encoding) -> TokenizedText:
    side = sides.axis_of_encoding(tokenizer, encoded)
    return TokenizedText(side.tokens, tuple(encoded.ids), side.segments, tuple(encoded.special))


def _heads(sums: PatternSums, each: int) -> list[HeadPatterns]:
    """Means, chances and names from the sums."""
    measured = [place for place, count in enumerate(sums.tokens.tolist()) if count]
    heads = range(len(sums.totals))
    plain = [chance.tail(sums.totals[head, p], sums.draws[:, head, p]) for head in heads for p in measured]
    corrected = iter(zip(plain, chance.holm(plain), strict=True))
    found = []
    for head in heads:
        findings = [
            _finding(sums, head, place, next(corrected) if place in measured else None)
            for place in range(len(PATTERNS))
        ]
        nearest = max(findings, key=lambda finding: (finding.holds, finding.excess))
        examples = [
            HeadExample(text, row, column, [round(float(weight), 4) for weight in weights])
            for _, text, row, column, weights in sums.best[head][PATTERNS.index(nearest.pattern)]
        ]
        layer, number = divmod(head, each)
        name = nearest.pattern if nearest.holds else None
        found.append(HeadPatterns(layer, number, name, nearest.pattern, findings, examples))
    return found


def _finding(sums: PatternSums, head: int, place: int, chances: tuple[float, float] | None) -> PatternScore:
    tokens = int(sums.tokens[place])
    if chances is None:
        return PatternScore(PATTERNS[place], 0, None, None, None, None)
    score, expected = sums.totals[head, place] / tokens, sums.draws[:, head, place].mean() / tokens
    return PatternScore(PATTERNS[place], tokens, float(score), float(expected), *chances)
