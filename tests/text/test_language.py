"""Warnings about texts that are not in the language of a translator."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import regard
from regard.errors import InputError
from regard.known import BUILT_IN, builtin_folder, builtin_names
from regard.text.language import LANGUAGE, LanguageProfile

SENTENCES = {
    "German": [
        "Ich muss auf den Markt gehen.",
        "Die Katze schläft auf dem Sofa.",
        "Wo ist der Bahnhof?",
        "Gut.",
        "Tom!",
    ],
    "French": ["Je suis étudiant.", "Le chat dort sur le canapé.", "Où est la gare ?", "Bien.", "Tom !"],
    "English": ["Where is the train station?", "The cat is sleeping on the sofa.", "I would like to know the answer."],
    "Spanish": ["¿Dónde está la estación de tren?", "Me gustaría conocer la respuesta a esta pregunta."],
    "Russian": ["Где находится вокзал?"],
    "no language": ["", "42 + 1 = 43!", "12:30"],
}
TRANSLATORS = [name for name in builtin_names() if (builtin_folder(name) / "translate.json").is_file()]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_profile_of_a_built_in_translator(name: str) -> None:
    profile = LanguageProfile.open(builtin_folder(name))
    assert profile is not None and profile.name == BUILT_IN[name].languages[0]
    assert (builtin_folder(name) / LANGUAGE).stat().st_size < 100_000
    for language, texts in SENTENCES.items():
        if language in (profile.name, "no language"):
            assert [text for text in texts if not profile.fits(text)] == []
        else:  # single words could be of either language
            assert [text for text in texts if profile.fits(text) and len(text.split()) > 2] == [], language


def invented(seed: int, letters: str, count: int) -> list[str]:
    """Sentences of words that follow the order of `letters`."""
    rng = random.Random(seed)

    def word() -> str:
        start = rng.randrange(len(letters))
        return "".join(letters[(start + index) % len(letters)] for index in range(rng.randint(3, 8)))

    return [" ".join(word() for _ in range(rng.randint(3, 7))) for _ in range(count)]


def test_a_profile_of_training_pairs_and_its_file(tmp_path: Path) -> None:
    here, there = invented(0, "abcdefgh", 6000), invented(1, "hgfedcba", 6000)
    profile = LanguageProfile.fit(here, there)
    assert profile is not None and LanguageProfile.fit(here[:100], there[:100]) is None
    assert all(map(profile.fits, invented(2, "abcdefgh", 200)))
    assert not any(map(profile.fits, invented(3, "hgfedcba", 200)))
    assert not any(map(profile.fits, invented(4, "acegbdfh", 200)))  # a third language
    (tmp_path / LANGUAGE).write_bytes(profile.file())
    again = LanguageProfile.open(tmp_path)
    assert again is not None and again.log_odds == profile.log_odds
    assert (again.unseen, again.name) == (profile.unseen, "")


def test_the_warning_counts_the_texts() -> None:
    profile = LanguageProfile({}, 0, 0.0, "German")
    assert profile.note([], count=3) is None
    assert str(profile.note([0], count=1)).startswith("the text does not look like German")
    note = str(profile.note([1, 4, 5, 6, 7, 8], count=10))
    assert note.startswith("6 of 10 texts do not look like German") and "(texts 1, 4, 5, 6, 7, ..., from 0)" in note


def test_a_damaged_profile_is_an_error(tmp_path: Path) -> None:
    for content in ({}, {"log_odds": [], "unseen": 1, "threshold": 1}, {"log_odds": {"x": "abc"}}, {"log_odds": {}}):
        (tmp_path / LANGUAGE).write_text(json.dumps(content))
        with pytest.raises(InputError, match="unexpected content"):
            LanguageProfile.open(tmp_path)


def test_translate_and_figure_warn() -> None:
    """The studio and HTTP show the notes of the same results."""
    english, german = "Where is the train station?", "Wo ist der Bahnhof?"
    options = {"model": "regard-de-en", "num_beams": 1, "steps": True}
    foreign, right = (regard.translate(source=text, **options) for text in (english, german))
    assert "German" in foreign.notes[0] and right.notes == []
    assert foreign.view_data()["notes"] == foreign.notes and right.view_data()["notes"] == []
    forced = regard.translate(model="regard-de-en", source=english, target=["Where is the station?"])
    assert forced.notes == foreign.notes
    french = regard.translate("regard-de-en", "Je voudrais savoir où est la gare.", num_beams=1)
    assert french.notes[0].endswith("regard-fr-en reads French") and "reads" not in foreign.notes[0].partition(":")[2]
    assert regard.figure(english, model="regard-de-en", ablation=False).notes == foreign.notes
