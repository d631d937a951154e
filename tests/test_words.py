"""The code uses the terms of the field: no identifier from the list below, and no class name with two meanings."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = sorted((Path(__file__).resolve().parents[1] / "src" / "regard").rglob("*.py"))

# The identifier to avoid, and the term to use.
TERMS = {
    "solved": "fine_tuned",
    "tuned": "fine_tuned",
    "speaker": "decoder",
    "hear": "embed_next",
    "heard": "prompt_ids",
    "said": "generated, text or message",
    "say": "on_event or print",
    "speak": "generate",
    "speech": "generation",
    "wish": "generation_config",
    "softness": "temperature",
    "places": "positions or indices",
    "shares": "probabilities",
    "sight": "attention",
    "trial": "probe",
    "shown": "attention_map",
    "grounds": "evidence",
    "frugal": "gradient_checkpointing",
    "calm": "scaled_init",
    "thaw": "unfreeze",
    "slower": "layerwise_lr_decay",
    "straight": "fused_step",
    "bursts": "graph_decoder",
    "screening": "int8_argmax",
    "one_row": "single_row",
    "surgery": "ablation",
    "material": "dataset",
    "portion": "micro_batch",
    "stretches": "chunks",
    "shelf": "registry",
    "tell": "on_event",
    "told": "on_event or reported",
    "news": "event",
}


def identifiers(path: Path) -> Iterator[tuple[str, int]]:
    yield path.stem, 0
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno


def test_identifiers_are_terms_of_the_field() -> None:
    found = [
        f"{path}:{line}: {name} -> {TERMS[name.lower().strip('_')]}"
        for path in SOURCES
        for name, line in identifiers(path)
        if name.lower().strip("_") in TERMS
    ]
    assert not found, "\n".join(found)


def test_class_names_are_unique() -> None:
    definitions: dict[str, set[Path]] = defaultdict(set)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                definitions[node.name].add(path)
    duplicates = {name: sorted(map(str, paths)) for name, paths in definitions.items() if len(paths) > 1}
    assert not duplicates, duplicates
