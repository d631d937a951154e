"""A trace of a search or of sampling, step by step: candidates, choices, filtered tokens and beams that ended.

Searches and samplers report to a trace if they are given one. `document()` is JSON, and the classes below are its
schema. Nodes are prefixes of texts, numbered within their row; node 0 is the prompt. The fate of a candidate is "kept"
(continued), "ended" (a hypothesis), "cut" (removed by a filter) or "passed" (available, but not chosen). The logarithm
of 0 is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NotRequired

from torch import Tensor
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from regard.inference.generation.beam_search import Continuation, Hypothesis
from regard.render.bundle import page

Fate = Literal["kept", "ended", "cut", "passed"]
CUT = 3  # of what filters cut, so many of the likeliest are listed at least
TITLES = {"beam": "A beam search, step by step", "sample": "Sampling, token by token"}


class TraceCandidate(TypedDict):
    """A candidate for the next token of a prefix."""

    token: int
    text: str
    log_probability: float | None  # of the token, as the model has it
    total: float | None  # of all tokens up to here
    fate: Fate
    by: NotRequired[str]  # cut: the filter that did it
    child: NotRequired[int]  # kept and ended: the node it became
    chance: NotRequired[float]  # samples: its probability after all filters


class FilterCut(TypedDict):
    """What one filter took from the whole vocabulary: how many tokens, and their share of the model's probability."""

    by: str
    count: int
    share: float


class TraceChoice(TypedDict):
    """The continuations of a prefix: the likeliest `top` tokens, the first removed by filters, and the choice."""

    node: int
    candidates: list[TraceCandidate]
    cut: list[FilterCut]


class TraceStep(TypedDict):
    """`died`: prefixes without a continuation."""

    step: int
    choices: list[TraceChoice]
    died: list[int]


class TraceResult(TypedDict):
    """A text that was found: the node it ends in, and its tokens without the end token."""

    node: int
    tokens: list[int]
    text: str
    log_probability: float | None
    score: float | None
    finished: bool


class TraceRow(TypedDict):
    """`row`: from 0, or as given to `Trace.set_row_numbers`. `left`: prefixes that were alive at the end and did not
    become hypotheses."""

    row: int
    steps: list[TraceStep]
    left: list[int]
    results: list[TraceResult]


class TraceDocument(TypedDict):
    """`about` is what the caller knows: the prompt, the model, the settings."""

    format: Literal["regard trace"]
    version: int
    method: Literal["beam", "sample"]
    top: int
    about: dict[str, object]
    rows: list[TraceRow]


class _Taken(TypedDict):
    fate: Fate
    child: int


@dataclass
class _Tree:
    """The tree of one row: the tokens of each node, and the steps so far."""

    alive: list[int] = field(default_factory=lambda: [0])
    tokens: dict[int, tuple[int, ...]] = field(default_factory=lambda: {0: ()})
    totals: dict[int, float] = field(default_factory=lambda: {0: 0.0})
    ended: dict[tuple[tuple[int, ...], bool], int] = field(default_factory=dict)
    steps: list[TraceStep] = field(default_factory=list)
    results: list[TraceResult] = field(default_factory=list)

    def grow(self, parent: int, token: int, total: float) -> int:
        node = len(self.tokens)
        self.tokens[node], self.totals[node] = (*self.tokens[parent], token), total
        return node


class Trace:
    """Pass one to `beam_search` or `sample`, then call `document`.

    `top` candidates of each prefix are listed. `token_text` returns the text of one token, `decode` that of several.
    """

    def __init__(
        self,
        *,
        top: int = 10,
        token_text: Callable[[int], str] | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self.top = top
        self._method: Literal["beam", "sample"] = "beam"
        self._spell = token_text or (lambda token: f"<{token}>")
        self._decode = decode or (lambda tokens: "".join(map(self._spell, tokens)))
        self._trees: dict[int, _Tree] = {}
        self._numbers: Mapping[int, int] = {}

    def set_row_numbers(self, rows: Sequence[int]) -> None:
        """How the document numbers the rows of the batch, where it left some texts out; by default from 0."""
        self._numbers = dict(enumerate(rows))

    def beam(
        self,
        row: int,
        table: Tensor,
        going: Sequence[Continuation],
        ended: Sequence[Continuation],
        *,
        end: int | None,
    ) -> None:
        """One step of a row's beam: the log-probabilities (beams, V) behind each slot, and what became of them."""
        tree = self._trees.setdefault(row, _Tree())
        taken: list[dict[int, _Taken]] = [{} for _ in tree.alive]
        for one in going:
            child = tree.grow(tree.alive[one.slot], one.token, one.total)
            taken[one.slot][one.token] = {"fate": "kept", "child": child}
        for one in ended:
            child = tree.grow(tree.alive[one.slot], one.token, one.total)
            taken[one.slot][one.token] = {"fate": "ended", "child": child}
            path = tree.tokens[child]
            tree.ended[(path[:-1], True) if one.token == end else (path, False)] = child
        choices: list[TraceChoice] = []
        for node, fates, scores in zip(tree.alive, taken, table, strict=True):
            candidates = [
                self._candidate(tree, node, token, float(scores[token]), fates.get(token))
                for token in self._listed(scores, fates)
            ]
            choices.append({"node": node, "candidates": candidates, "cut": []})
        died = [node for node, fates in zip(tree.alive, taken, strict=True) if not fates]
        tree.steps.append({"step": len(tree.steps) + 1, "choices": choices, "died": died})
        tree.alive = [taken[one.slot][one.token]["child"] for one in going]

    def set_results(self, found: Sequence[Sequence[Hypothesis]]) -> None:
        """The hypotheses of every row at the end of a beam search."""
        for row, several in enumerate(found):
            tree = self._trees.setdefault(row, _Tree())
            tree.results = [
                self._result(tree.ended[one.ids, one.finished], one.ids, one.log_probability, one.score, one.finished)
                for one in several
            ]

    def sample(
        self, row: int, logits: Tensor, stages: Sequence[tuple[str, Tensor]], token: int, *, end: int | None
    ) -> None:
        """One token of a row: the model's logits (V,), those after each filter, and the token that was chosen."""
        self._method = "sample"
        tree = self._trees.setdefault(row, _Tree())
        node = tree.alive[0]
        scores = logits.double().log_softmax(-1)
        chances = (stages[-1][1] if stages else logits).double().softmax(-1)
        child = tree.grow(node, token, tree.totals[node] + float(scores[token]))
        taken: dict[int, _Taken] = {token: {"fate": "ended" if token == end else "kept", "child": child}}
        candidates = []
        for number in self._listed(scores, [*_likeliest_cut(scores, chances), token]):
            one = self._candidate(tree, node, number, float(scores[number]), taken.get(number))
            one["chance"] = float(chances[number])
            cut_by = [name for name, numbers in stages if float(numbers[number]) == -math.inf]
            if one["fate"] == "passed" and cut_by:
                one["fate"], one["by"] = "cut", cut_by[0]
            candidates.append(one)
        choice: TraceChoice = {"node": node, "candidates": candidates, "cut": _cuts(scores, stages)}
        tree.steps.append({"step": len(tree.steps) + 1, "choices": [choice], "died": []})
        tree.alive = [child]
        path = tree.tokens[child]
        tokens = path[:-1] if token == end else path
        total = tree.totals[child]
        tree.results = [self._result(child, tokens, total, total / len(path), token == end)]

    def document(self, about: Mapping[str, object] | None = None) -> TraceDocument:
        """All of it, ready for JSON; `about` is what the caller adds."""
        rows: list[TraceRow] = []
        for row, tree in sorted(self._trees.items()):
            ends = {result["node"] for result in tree.results}
            left = [node for node in tree.alive if node not in ends]
            number = self._numbers.get(row, row)
            rows.append({"row": number, "steps": tree.steps, "left": left, "results": tree.results})
        return {
            "format": "regard trace",
            "version": 1,
            "method": self._method,
            "top": self.top,
            "about": dict(about or {}),
            "rows": rows,
        }

    def _listed(self, scores: Tensor, others: Iterable[int]) -> list[int]:
        best: list[int] = scores.topk(min(self.top, len(scores))).indices.tolist()
        return [*best, *(token for token in others if token not in best)]

    def _candidate(self, tree: _Tree, node: int, token: int, score: float, taken: _Taken | None) -> TraceCandidate:
        one: TraceCandidate = {
            "token": token,
            "text": self._spell(token),
            "log_probability": _number(score),
            "total": _number(tree.totals[node] + score),
            "fate": "passed" if taken is None else taken["fate"],
        }
        if taken is not None:
            one["child"] = taken["child"]
        return one

    def _result(self, node: int, tokens: Sequence[int], total: float, score: float, finished: bool) -> TraceResult:
        return {
            "node": node,
            "tokens": list(tokens),
            "text": self._decode(tokens),
            "log_probability": _number(total),
            "score": _number(score),
            "finished": finished,
        }


def _likeliest_cut(scores: Tensor, chances: Tensor) -> list[int]:
    gone = scores.masked_fill(chances > 0, -math.inf)
    best = gone.topk(min(CUT, len(gone)))
    return [
        token for token, score in zip(best.indices.tolist(), best.values.tolist(), strict=True) if score > -math.inf
    ]


def _cuts(scores: Tensor, stages: Sequence[tuple[str, Tensor]]) -> list[FilterCut]:
    """The tokens that each filter removed."""
    found: list[FilterCut] = []
    before = scores == -math.inf
    for name, numbers in stages:
        now = numbers == -math.inf
        new = now & ~before
        if bool(new.any()):
            found.append({"by": name, "count": int(new.sum()), "share": float(scores[new].exp().sum())})
        before = now
    return found


def _number(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def search_page(document: TraceDocument, *, cli: str, python: str) -> str:
    """The page of a trace: for each row its texts, the tree and the steps; `cli` and `python` reproduce it."""
    title = TITLES[document["method"]]
    return page({"view": "decoding", "title": title, "trace": document, "cli": cli, "python": python}, title=title)
