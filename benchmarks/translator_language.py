"""The profile of the source language of a built-in translator: fitted, evaluated on held-out sentences, and written.

    python -m benchmarks.translator_language [NAME ...] [--data DIR] [--write] [--save]
    python -m benchmarks.translator_language --english part-a.txt.xz [--write]

NAME is one of `benchmarks.tatoeba`; by default all that are built in. Fitted to the training pairs of Tatoeba, and
evaluated on the 4,000 held-out pairs: false alarms on sentences of the right language, and detection of sentences in
English and in the source language of the other translators. --write adds language.json to the folders; their weights
do not change. --english fits the profile that all English models share, in the folder of regard-bert: to the English
sides of Tatoeba and to every 16th paragraph of a file of the pretraining corpus.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.tatoeba import BUILT_IN, DATA, HELD_OUT, TRANSLATORS, split_pairs
from benchmarks.timing import save_results
from regard.files.checksums import CHECKSUMS, sha256_of
from regard.files.json_files import json_bytes, read_json
from regard.known import DEFAULT_MODEL
from regard.text.language import LANGUAGE, LanguageProfile

PARAGRAPH = 300  # characters of a paragraph
THRESHOLD = -6.0  # log-odds of a text in another language than English


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRANSLATORS))
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="N", help="pairs for dev and for test, each")
    parser.add_argument("--write", action="store_true", help="add language.json to the folders in the package")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/translator_language.json")
    parser.add_argument("--english", type=Path, metavar="FILE", help="fit the profile of the English models")
    options = parser.parse_args(arguments)
    if options.english is not None:
        fit_english(options)
        return
    names = options.names or [name for name in TRANSLATORS if (BUILT_IN / f"regard-{name}").is_dir()]
    archives = {TRANSLATORS[name].archive: name for name in reversed([*TRANSLATORS])}  # one name for each
    read = {}
    for archive, name in archives.items():
        options.name = name
        read[archive] = split_pairs(options, seed=0)
    sentences = {TRANSLATORS[name].language: _held_out(read[archive], "source") for archive, name in archives.items()}
    sentences["English"] = [text for parts in read.values() for text in _held_out(parts, "target")]
    results: dict[str, Any] = {}
    for name in names:
        translator = TRANSLATORS[name]
        train = read[translator.archive]["train"].examples
        profile = LanguageProfile.fit(*zip(*train, strict=True), name=translator.language)
        if profile is None:
            raise SystemExit(f"{name}: {len(train):,} pairs are too few")
        results[f"regard-{name}"] = {
            "reads": translator.language,
            "bytes": len(profile.file()),
            **{
                language: {"sentences": len(texts), "warnings": sum(not profile.fits(text) for text in texts)}
                for language, texts in sentences.items()
            },
        }
        print(name, json.dumps(results[f"regard-{name}"]), flush=True)
        if options.write:
            add_file(BUILT_IN / f"regard-{name}", LANGUAGE, profile.file())
    if options.save:
        print(save_results("translator_language", results))


def fit_english(options: argparse.Namespace) -> None:
    sides: dict[str, list[str]] = {"source": [], "target": []}
    held_out: dict[str, list[str]] = {"source": [], "target": []}
    for name in ("de-en", "fr-en"):
        options.name = name
        parts = split_pairs(options, seed=0)
        for side, texts in sides.items():
            texts += [getattr(pair, side) for pair in parts["train"].examples]
            held_out[side] += _held_out(parts, side)
    with lzma.open(options.english, "rt", encoding="utf-8") as file:
        paragraphs = [line.strip()[:PARAGRAPH] for line in islice(file, 0, None, 16) if line.strip()]
    fitted = LanguageProfile.fit([*sides["target"], *paragraphs], sides["source"], name="English")
    assert fitted is not None
    profile = replace(fitted, threshold=THRESHOLD)
    found = {side: sum(map(profile.is_foreign, texts)) for side, texts in held_out.items()}
    print(f"English {found['target']} of {len(held_out['target']):,}, others {found['source']} of the same number")
    print(f"{len(profile.file()):,} bytes")
    if options.write:
        add_file(BUILT_IN / DEFAULT_MODEL, LANGUAGE, profile.file())


def _held_out(parts: Any, side: str) -> list[str]:
    return [getattr(pair, side) for name in ("dev", "test") for pair in parts[name].examples]


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Add a file to a model folder and to its checksums."""
    (folder / name).write_bytes(content)
    listed = read_json(folder / CHECKSUMS)
    (folder / CHECKSUMS).write_bytes(json_bytes({**listed, name: f"sha256:{sha256_of(folder / name)}"}))


if __name__ == "__main__":
    main()
