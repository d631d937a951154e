"""`regard score`: how likely a model finds each line of a file."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ModelOption
from regard.cli.output import note, print_json, progress, write_data
from regard.known import DEFAULT_CAUSAL_LM
from regard.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from regard.inference.line_scores import LineScore

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("score")(score)


def score(
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A text a line; - is standard input; .gz, .xz, .bz2 and .zst are read."),
    ],
    model: ModelOption = DEFAULT_CAUSAL_LM,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Give the log-probability of each line of a file in nats, its tokens, and the mean of one token.

    Three columns and the line itself, with tabs between them. A line is scored alone, its first token too where the
    model has a begin token; that it ends is not scored. One that is longer than the model reads is scored in windows
    that overlap by half. A BERT gets pseudo-log-likelihood: each token is masked in turn, which is no probability of
    the line and compares with no GPT's.
    """
    from regard.checkpoints.loading import load
    from regard.device import choose_device
    from regard.inference.line_scores import read_lines_to_score, score_lines
    from regard.models import Bert

    place, lines = choose_device(device), read_lines_to_score(source)
    first = next(lines)  # before the model: what is wrong with the file shows at once
    loaded, tokenizer = load(model, device=place)
    kind = "pseudo-log-likelihood" if isinstance(loaded, Bert) else "log-probability"
    waiting: deque[str] = deque()
    found: list[LineScore] = []
    long = unscored = 0
    with progress("scoring", unit="lines") as count:
        for one in score_lines(loaded, tokenizer, _kept(chain([first], lines), waiting)):
            text = waiting.popleft()
            if as_json:
                found.append(one)
            else:
                write_data(f"{one.log_probability:.4f}\t{one.tokens}\t{_mean(one.mean)}\t{text}\n")
            long += one.long
            unscored += one.unscored
            count(1)
    for remark in _remarks(kind, long=long, unscored=unscored):
        note(remark)
    if as_json:
        print_json(_document(model, kind, found))


def _kept(lines: Iterable[str], waiting: deque[str]) -> Iterator[str]:
    """The lines, which also wait to be printed."""
    for line in lines:
        waiting.append(line)
        yield line


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _remarks(kind: str, *, long: int, unscored: int) -> Iterator[str]:
    if kind != "log-probability":
        yield f"{kind}: each token was masked in turn and predicted from both sides; no GPT's number compares"
    if long:
        yield f"scored in windows, for more tokens than the model reads at once: {count_of(long, 'line')}"
    if unscored:
        yield f"the first tokens of {count_of(unscored, 'line')} were not scored: this model has no begin token"


def _document(model: str, kind: str, found: list[LineScore]) -> dict[str, object]:
    from dataclasses import asdict

    total, tokens = sum(one.log_probability for one in found), sum(one.tokens for one in found)
    return {
        "model": model,
        "kind": kind,
        "log_probability": total,
        "tokens": tokens,
        "lines": [asdict(one) for one in found],
    }
