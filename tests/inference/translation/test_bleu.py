"""BLEU compared with sacrebleu and with an example worked by hand."""

from __future__ import annotations

import math

import pytest
import sacrebleu

from regard.errors import InputError
from regard.inference.translation.translator import bleu

SAID = ["Ein Hund läuft im Park.", "Zwei Männer stehen auf der Straße und reden."]
MEANT = ["Ein Hund rennt im Park.", "zwei Männer stehen auf der Straße und sprechen ."]


def test_it_equals_sacrebleu() -> None:
    found = bleu(SAID, MEANT)
    assert found.bleu == sacrebleu.corpus_bleu(SAID, [MEANT]).score
    assert found.bleu_lowercase == sacrebleu.corpus_bleu(SAID, [MEANT], lowercase=True).score
    assert found.bleu < found.bleu_lowercase
    assert "case:mixed|eff:no|tok:13a|smooth:exp|version:" in found.signature
    assert "case:lc|" in found.signature_lowercase
    assert found.scores == {"bleu": found.bleu, "bleu_lowercase": found.bleu_lowercase}


def test_an_example_by_hand() -> None:
    """Seven tokens, the last but one wrong: 6/7, 4/6, 3/5, 2/4 of n-grams, no brevity penalty."""
    found = bleu(["a b c d e x g"], ["a b c d e f g"])
    assert found.bleu == pytest.approx(100 * math.prod((6 / 7, 4 / 6, 3 / 5, 2 / 4)) ** 0.25)


def test_different_numbers_of_texts_are_refused() -> None:
    with pytest.raises(InputError, match="2 translations and 1 references"):
        bleu(SAID, MEANT[:1])
