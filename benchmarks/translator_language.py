"""The profile of the source language of a built-in translator: fitted, evaluated on held-out sentences, and written.

    python -m benchmarks.translator_language [NAME ...] [--data DIR] [--write] [--save]

NAME is one of `benchmarks.tatoeba`; by default all that are built in. Fitted to the training pairs of Tatoeba, and
evaluated on the 4,000 held-out pairs: false alarms on sentences of the right language, and detection of sentences in
English and in the source language of the other translators. --write adds language.json to the folders; their weights
do not change.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tatoeba import BUILT_IN, DATA, HELD_OUT, TRANSLATORS, split_pairs
from benchmarks.timing import save_results
from regard.files.checksums import CHECKSUMS, sha256_of
from regard.files.json_files import json_bytes, read_json
from regard.inference.translation.language import LANGUAGE, LanguageProfile


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRANSLATORS))
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="N", help="pairs for dev and for test, each")
    parser.add_argument("--write", action="store_true", help="add language.json to the folders in the package")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/translator_language.json")
    options = parser.parse_args(arguments)
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


def _held_out(parts: Any, side: str) -> list[str]:
    return [getattr(pair, side) for name in ("dev", "test") for pair in parts[name].examples]


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Add a file to a model folder and to its checksums."""
    (folder / name).write_bytes(content)
    listed = read_json(folder / CHECKSUMS)
    (folder / CHECKSUMS).write_bytes(json_bytes({**listed, name: f"sha256:{sha256_of(folder / name)}"}))


if __name__ == "__main__":
    main()
