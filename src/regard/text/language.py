"""Whether a text is in the language that a model reads: the log-odds of its letters, three at a time.

The profile is fitted to the sources of the training pairs, without any other data. Each triple of neighboring letters
of a word, or of a letter and the space before or after the word, adds the logarithm of its probability in the source
language over that in other languages: half the target language of the pairs, half letters without order. A text is in
another language if the sum is below a threshold, which hardly any sentence that was left out of the fit falls below.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import json_bytes, read_json
from regard.known import BUILT_IN, builtin_folder, builtin_names

LANGUAGE = "language.json"
WORD = re.compile(r"[^\W\d_]+")
ADDRESS = re.compile(
    r"\S*(?:\w[./@:\\#=_]\w|[@#]\w|//)\S*"
)  # also names of files and of users, which are in no language
OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u024f\u1e00-\u1eff]{2,}")  # not Latin; one letter alone may be of a formula
MIN_PAIRS = 5000  # with fewer, rare triples are not known well enough
SMOOTHING = 0.05  # count of a triple that was never seen
STEPS = 4  # per unit of log-odds, stored as integers
FOLDS = 5
MAX_SHOWN = 5  # numbers of texts in a warning
MAX_QUOTED = 60  # characters of a sentence in a warning
MAX_TESTED = 500  # characters of a text
MAX_MEAN = -0.5  # log-odds of the triples of a text that is clearly in another language
QUANTILE = 0.0004  # of sentences that may fall below the threshold


@dataclass(frozen=True)
class LanguageProfile:
    """`log_odds` of triples of letters, those of all others, and the sum below which a text is in another language."""

    log_odds: dict[str, int]
    unseen: int
    threshold: float
    name: str = ""  # of the language, if it is known

    @classmethod
    def fit(cls, sources: Sequence[str], targets: Sequence[str], *, name: str = "") -> LanguageProfile | None:
        """Fit to the two sides of training pairs; None if they are too few."""
        sources, targets = list(dict.fromkeys(sources)), list(dict.fromkeys(targets))
        if min(len(sources), len(targets)) < MIN_PAIRS:
            return None
        counts = [_count(sources[fold::FOLDS]) for fold in range(FOLDS)]
        total, other = sum(counts, Counter[str]()), _count(targets)
        scores = [
            profile.score(text)
            for fold in range(FOLDS)
            for profile in [_profile(total - counts[fold], other)]
            for text in sources[fold::FOLDS]
        ]
        threshold = sorted(scores)[int(QUANTILE * len(scores))]
        final = _profile(total, other)
        return cls(final.log_odds, final.unseen, min(threshold, -1.0), name)

    def score(self, text: str) -> float:
        """The log-odds that the text is in the source language."""
        return sum(self.log_odds.get(triple, self.unseen) for triple in triples(text)) / STEPS

    def fits(self, text: str) -> bool:
        return self.score(text) >= self.threshold

    def is_foreign(self, text: str) -> bool:
        """Whether a text of any kind, such as a message with names and codes, is clearly in another language."""
        bare = ADDRESS.sub(" ", text[:MAX_TESTED])
        found = [self.log_odds.get(triple, self.unseen) for triple in triples(bare)]
        score = sum(found) / STEPS
        return score < self.threshold and score < MAX_MEAN * len(found)

    def note(self, foreign: Sequence[int], *, count: int, example: str = "", sentence: str = "") -> str | None:
        """A warning about the texts with these numbers, of `count`; None without any. `example` is one of them.

        `sentence` is one in another language, if some of the texts are so in part only.
        """
        if not foreign:
            return None
        known = f"{self.name}, which this translator reads" if self.name else "the language that this translator reads"
        suitable = suitable_translator(example) if example else ""
        quoted = sentence if len(sentence) <= MAX_QUOTED else f"{sentence[:MAX_QUOTED]}..."
        if count == 1 and sentence:
            return f"“{quoted}” does not look like {known}: its translation may be meaningless{suitable}"
        if count == 1:
            return f"the text does not look like {known}: its translation may be meaningless{suitable}"
        listed = ", ".join(map(str, foreign[:MAX_SHOWN])) + (", ..." if len(foreign) > MAX_SHOWN else "")
        these = f"texts have sentences, such as “{quoted}”, that" if sentence else "texts"
        return (
            f"{len(foreign):,} of {count:,} {these} do not look like {known}: their translations may be meaningless "
            f"(texts {listed}, from 0){suitable}"
        )

    def file(self) -> bytes:
        """The content of language.json: for each value, the triples that have it, one after the other."""
        groups: dict[int, str] = {}
        for triple, value in sorted(self.log_odds.items()):
            groups[value] = groups.get(value, "") + triple
        odds = {str(value): text for value, text in sorted(groups.items())}
        document = {"log_odds": odds, "name": self.name, "unseen": self.unseen, "threshold": round(self.threshold, 2)}
        return json_bytes(document)

    @classmethod
    def open(cls, folder: Path) -> LanguageProfile | None:
        """Read the profile in the folder of a translator; None if it has none."""
        path = folder / LANGUAGE
        if not path.is_file():
            return None
        document = read_json(path)
        try:
            groups, unseen, threshold = document["log_odds"], document["unseen"], document["threshold"]
            log_odds = {
                text[start : start + 3]: int(value)
                for value, text in groups.items()  # type: ignore[attr-defined]
                for start in range(0, len(text), 3)
            }
            if not isinstance(unseen, int) or not isinstance(threshold, int | float) or not math.isfinite(threshold):
                raise TypeError("unseen or threshold is not a number")
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise InputError(f"{path}: unexpected content: {error}; copy the folder again") from None
        return cls(log_odds, unseen, float(threshold), str(document.get("name", "")))


def in_another_script(text: str) -> bool:
    """Whether most letters of a text are of another script than the Latin one."""
    if text.isascii():
        return False
    text = text[:MAX_TESTED]
    return 2 * sum(map(len, OTHER_SCRIPT.findall(text))) > sum(map(str.isalpha, text))


def suitable_translator(text: str) -> str:
    """A sentence about a built-in translator that reads the language of a text; empty if there is none."""
    for name in builtin_names():
        profile = LanguageProfile.open(builtin_folder(name)) if len(BUILT_IN[name].languages) == 2 else None
        if profile is not None and profile.fits(text):
            return f". {name} reads {profile.name}"
    return ""


def triples(text: str) -> Iterable[str]:
    for word in WORD.findall(text.lower()):
        padded = f" {word} "
        for start in range(len(padded) - 2):
            yield padded[start : start + 3]


def _count(texts: Iterable[str]) -> Counter[str]:
    return Counter(triple for text in texts for triple in triples(text))


def _profile(source: Counter[str], other: Counter[str]) -> LanguageProfile:
    letters = Counter[str]()
    for triple, count in [*source.items(), *other.items()]:
        for letter in triple:
            letters[letter] += count
    num_letters, num_source, num_other = letters.total(), source.total(), other.total()

    def log_odds(triple: str) -> int:
        unordered = math.prod(letters[letter] / num_letters for letter in triple)
        elsewhere = (other[triple] / num_other + unordered) / 2
        here = (source[triple] + SMOOTHING) / num_source
        return max(-127, min(127, round(STEPS * math.log(here / max(elsewhere, 1e-7)))))

    known = {triple for triple in source if source[triple] > 0} | {triple for triple in other if other[triple] > 4}
    unseen = math.log(SMOOTHING / num_source / 3e-6)
    return LanguageProfile({triple: log_odds(triple) for triple in known}, round(STEPS * unseen), 0.0)
