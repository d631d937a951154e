"""The generated tables of docs/performance.md, from the files in benchmarks/results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import RESULTS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
STATES = {True: "reached", False: "missed", None: ""}


def update_document(document: Path = DOCUMENT, results: Path = RESULTS) -> Path:
    """Replace everything between `<!-- NAME -->` and `<!-- end -->` by the table of that name."""
    tables = {
        "figures cpu": figures_table(read(results, "all-cpu")),
        "figures cuda": figures_table(read(results, "all-cuda")),
        "engines": engines_table(read(results, "embed")),
        "engines avx2": engines_table(read(results, "embed-avx2")),
        "operations": operations_table(read(results, "operations")),
    }
    text = document.read_text(encoding="utf-8")
    for name, lines in tables.items():
        table = "\n".join(["", *lines, ""])
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda match, table=table: match[1] + table + match[2], text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{document}: expected one section `<!-- {name} -->`, found {count}")
    document.write_text(text, encoding="utf-8")
    return document


def read(results: Path, name: str) -> dict[str, Any] | None:
    """A stored result, or None if it was not measured."""
    path = results / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def figures_table(result: Mapping[str, Any] | None) -> list[str]:
    """The table of `benchmarks.all`."""
    if result is None:
        return ["Not measured yet."]
    lines = [measured(result), ""]
    rows = []
    for row in result["figures"]:
        peer = f"{number(row['peers'][row['best_peer']])} ({row['best_peer']})" if row["best_peer"] else ""
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        regard = f"{number(row['regard'])} {row['unit']}"
        rows.append([row["work"], regard, peer, ratio, row["target"], STATES[row["reached"]], row["note"]])
    lines += table(["work", "Regard", "best peer", "ratio", "target", "", "note"], rows)
    if result["missing"]:
        names = "; ".join(f"{name} ({reason})" for name, reason in result["missing"].items())
        lines += ["", f"Not measured: {names}."]
    return lines


def engines_table(result: Mapping[str, Any] | None) -> list[str]:
    """The table of `benchmarks.embed`: throughput of each workload, and latency."""
    if result is None or "workloads" not in result:
        return ["Not measured yet."]
    workloads, latency = result["workloads"], result.get("latency", {}).get("engines", {})
    titles = [f"{name}, texts/s (ratio, worst cosine)" for name in workloads]
    rows = []
    for engine in next(iter(workloads.values()))["engines"]:
        cells = [engine]
        for workload in workloads.values():
            row = workload["engines"][engine]
            cells.append(f"{row['texts_per_second']:.0f} ({row['ratio']:.2f}, {row['worst_cosine']:.4f})")
        if engine in latency:
            cells.append(f"{latency[engine]['p50_ms']:.1f} / {latency[engine]['p95_ms']:.1f}")
        rows.append(cells)
    header = ["engine", *titles, *(["one text, ms (median / 95%)"] if latency else [])]
    return [f"{measured(result)} Instructions: {result['path']}.", "", *table(header, rows)]


def operations_table(result: Mapping[str, Any] | None) -> list[str]:
    """The table of `benchmarks.operations`: shares of the time by operation."""
    if result is None:
        return ["Not measured yet."]
    precisions = result["precisions"]
    names = list(dict.fromkeys(name for shares in precisions.values() for name in shares["shares"]))
    rows = [[name, *(f"{each['shares'].get(name, 0):.0%}" for each in precisions.values())] for name in names]
    rows.append(["milliseconds in all", *(f"{each['milliseconds']:.1f}" for each in precisions.values())])
    return [measured(result), "", *table(["operation", *precisions], rows)]


def measured(result: Mapping[str, Any]) -> str:
    return f"Measured {result['date']} on {result['machine']}."


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
