"""The learning curve of a run: the mean training loss and the scores on dev after each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """The values as bars, from the lowest to the highest."""
    low, high = min(values), max(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1)) if high > low else 0] for value in values)


def curve_lines(
    losses: Sequence[float], history: Sequence[Mapping[str, float]], score: str, *, best: float | None = None
) -> list[str]:
    """The curve for a terminal: loss and score with first and last value; empty for a single epoch.

    `best` is the epoch that is kept, from 1.
    """
    if len(losses) != len(history) or len(losses) < 2:
        return []
    lines = [f"{'train loss':<20}{losses[0]:6.3f} {sparkline(losses)} {losses[-1]:.3f}  {len(losses)} epochs"]
    if all(score in scores for scores in history):
        values = [scores[score] for scores in history]
        kept = "" if best is None else f"  best: epoch {best:g}"
        lines.append(f"{'dev ' + score:<20}{values[0]:6.2f} {sparkline(values)} {values[-1]:.2f}{kept}")
    return lines


def curve_markdown(losses: Sequence[float], history: Sequence[Mapping[str, float]]) -> list[str]:
    """The curve as the lines of a Markdown table."""
    if len(losses) != len(history) or not losses:
        return []
    names = list(history[-1])
    rows = [["epoch", "train loss", *names], ["---"] * (2 + len(names))]
    for epoch, (loss, scores) in enumerate(zip(losses, history, strict=True), start=1):
        cells = [f"{scores[name]:.2f}" if name in scores else "" for name in names]
        rows.append([str(epoch), f"{loss:.4f}", *cells])
    return [f"| {' | '.join(row)} |" for row in rows]
