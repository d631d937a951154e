"""Texts of several sentences: each is translated, and the translations are joined with the spacing of the source."""

# ruff: noqa: RUF001 (the texts contain punctuation of other scripts)

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import regard
from regard.errors import InputWarning
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.sentences import (
    CompletenessCount,
    SourceSentence,
    TranslatedSentence,
    is_short,
    join_translations,
    sentence_spans,
    source_texts,
    split_source,
)
from regard.inference.translation.translator import Translator, load_translator

SENTENCES = [
    "Der Hund schläft im Garten.",
    "Es ist schön.",
    "Ich habe ein Buch gekauft.",
    "Morgen fahren wir nach Berlin.",
    "Die Kinder spielen.",
    "Das Wetter ist gut.",
    "Wir essen Brot.",
    "Er liest die Zeitung.",
]


@pytest.fixture(scope="module")
def german() -> Translator:
    return load_translator("regard-de-en")


def test_no_sentence_is_lost(german: Translator) -> None:
    alone = [found[0].text for found in german.translate(SENTENCES, beam=Beam())]
    assert german.translate([" ".join(SENTENCES)], beam=Beam())[0][0].text == " ".join(alone)
    [text] = regard.translate("regard-de-en", " ".join(SENTENCES)).texts
    assert text.translations[0].text == " ".join(alone)


@pytest.mark.parametrize("gap", ["  ", "\t", "\n", "\n\n", " \n"])
def test_the_spacing_between_sentences_stays(german: Translator, gap: str) -> None:
    text = f" {gap.join(SENTENCES[:3])}\n"
    [[found]] = german.translate([text])
    alone = [one[0].text for one in german.translate(SENTENCES[:3])]
    assert found.text == gap.join(alone)
    assert [text[slice(*one.source)] for one in found.sentences] == SENTENCES[:3]
    assert [found.text[slice(*one.target)] for one in found.sentences] == alone
    assert found.finished and found.log_probability == sum(one.log_probability for one in found.sentences)


def test_scripts_without_spaces_are_joined_as_the_target_is_written() -> None:
    sources = [SourceSentence(0, 3, False), SourceSentence(3, 6, False)]
    assert join_translations("你好。世界！", sources, ["Hello.", "World!"]) == ("Hello. World!", [(0, 6), (7, 13)])
    spaced = [SourceSentence(0, 3, False), SourceSentence(4, 7, False)]
    assert join_translations("Hi. Yo.", spaced, ["你好。", "嗨！"])[0] == "你好。嗨！"


def test_what_is_translated_at_once() -> None:
    def parts(text: str) -> list[str]:
        return [text[start:end] for start, end in sentence_spans(text)]

    assert parts(" ") == [] and parts(" Ein Satz \n") == [" Ein Satz \n"], "one sentence is given as it is"
    assert parts("Einkauf\nÄpfel\nBrot") == ["Einkauf", "Äpfel", "Brot"]
    assert parts("Ein Satz, der\nweitergeht. Ende.") == ["Ein Satz, der\nweitergeht.", "Ende."]
    assert parts("Das ist gut.\nder mann ging.\ndie frau schläft.") == [
        "Das ist gut.",
        "der mann ging.",
        "die frau schläft.",
    ]
    assert parts("Das kostet ca.\nzehn Euro. Ja.") == ["Das kostet ca.\nzehn Euro.", "Ja."], "an abbreviation"
    assert parts("Gut!\n😀\nJa!\n\n---") == ["Gut!\n😀", "Ja!\n\n---"]
    assert parts("Der Hund schläft.Die Katze wacht.Ich gehe.") == ["Der Hund schläft.", "Die Katze wacht.", "Ich gehe."]
    assert parts("Siehe www.Beispiel.de und z.B. die Datei U.S.A. hier.") == [
        "Siehe www.Beispiel.de und z.B. die Datei U.S.A. hier."
    ]
    text = ">>fra<< Good morning. Good night."
    assert source_texts(text, split_source(text, lambda _: True)) == [">>fra<< Good morning.", ">>fra<< Good night."]


def test_wrapped_lines_go_on() -> None:
    text = " ".join(SENTENCES)
    lines = textwrap.wrap(text, 40)
    assert any(line[0].isupper() and not before.endswith(".") for before, line in pairwise(lines))
    for wrapped in ("\n".join(lines), " \n  ".join(lines), f"Titel\n\n{chr(10).join(lines)}\n\nEnde"):
        found = [" ".join(wrapped[start:end].split()) for start, end in sentence_spans(wrapped)]
        assert found == (["Titel", *SENTENCES, "Ende"] if "Titel" in wrapped else SENTENCES)
    items = ["Einen großen Sack Kartoffeln kaufen", "Butter und Brot für vier Personen holen", "Den Nachbarn besuchen"]
    assert len(sentence_spans("\n".join(items))) == 3, "a list"


def test_a_list_of_clauses_that_is_cut_short_is_said(german: Translator) -> None:
    text = "Der Hund schläft; die Katze wacht; ich gehe; du kommst; er liest; wir singen; sie tanzen; ihr lacht."
    [[found]] = german.translate([text])
    assert found.sentences[0].short or all(word in found.text for word in ("cat", "read", "sing"))


def test_a_sentence_that_is_too_long_is_cut(german: Translator) -> None:
    text = "wir gehen in den Garten und essen Brot, dann lesen wir die Zeitung und schlafen ohne Sorgen weiter " * 3
    parts = german.split(text)
    assert len(parts) > 1 and all(part.cut for part in parts)
    assert "".join(text[part.start : part.end] for part in parts).replace(" ", "") == text.replace(" ", "")
    lengths = map(len, german.subwords.encode_sources([text[part.start : part.end] for part in parts]))
    assert max(lengths) <= german.max_length == 35
    assert german.split("我" * 300)[-1].end == 300, "without spaces"
    with pytest.warns(InputWarning, match="cut"):
        result = regard.translate("regard-de-en", [text, SENTENCES[0]], num_beams=1)
    assert any("cut" in note for note in result.notes)
    assert all(sentence["cut"] for sentence in result.to_dict()["texts"][0]["translations"][0]["sentences"])
    assert regard.translate("regard-de-en", SENTENCES, num_beams=1).notes == []


FRENCH = "Je ne sais pas pourquoi il est parti hier soir."


def test_a_sentence_in_another_language_is_said(german: Translator) -> None:
    [note] = german.source_notes(f"{SENTENCES[0]} {FRENCH} {SENTENCES[1]}")
    assert f"“{FRENCH}” does not look like German" in note and "regard-fr-en reads French" in note
    texts = [SENTENCES[0], f"{' '.join(SENTENCES)} {FRENCH}"]
    with pytest.warns(InputWarning, match="do not look like"):
        result = regard.translate("regard-de-en", texts, num_beams=1)
    [note] = result.notes
    assert note.startswith(f"1 of 2 texts have sentences, such as “{FRENCH}”") and "(texts 1, from 0)" in note
    assert german.source_notes(" ".join(SENTENCES)) == [], "none of them is"


def test_characters_that_the_vocabulary_does_not_have_are_said(german: Translator) -> None:
    [note] = german.source_notes("Ich bin müde 😀")
    assert note.startswith("the text has characters") and "“😀”" in note
    with pytest.warns(InputWarning, match="vocabulary"):
        result = regard.translate("regard-de-en", ["Ich bin müde 😀", SENTENCES[0]], num_beams=1)
    [note] = result.notes
    assert note.startswith("1 of 2 sentences have characters") and "“😀”" in note
    with pytest.warns(InputWarning, match="vocabulary"):
        view = regard.translate("regard-de-en", "Ich bin müde 😀", num_beams=1, steps=True).view_data()
    assert "“😀”" in view["notes"][0], "on the page"
    assert german.subwords.unknown_characters("„Ä – ß“\t’") == []


def test_the_best_translations_of_a_text(german: Translator) -> None:
    beam = Beam(num_beams=3, num_return_sequences=3)
    [first], [second] = ([found] for found in german.translate(SENTENCES[:2], beam=beam))
    [both] = german.translate([" ".join(SENTENCES[:2])], beam=beam)
    means = sorted(-(a.score + b.score) / 2 for a in first for b in second)
    assert [one.score for one in both] == pytest.approx([-mean for mean in means[:3]], abs=1e-5)
    assert both[0].text == f"{first[0].text} {second[0].text}"


def test_alignments_number_the_words_of_the_whole_text(german: Translator) -> None:
    text = " ".join(SENTENCES[:3])
    [[found]] = german.translate([text])
    alignment = german.align_sentences(text, found)
    assert alignment.source == text.split() and alignment.target == found.text.split()
    assert all(sum(row) == pytest.approx(1) and len(row) == len(alignment.source) for row in alignment.weights)
    bounds = [len(" ".join(SENTENCES[:count]).split()) for count in range(4)]
    numbers = [n for n, one in enumerate(found.sentences) for _ in found.text[slice(*one.target)].split()]
    assert all(bounds[n] <= word < bounds[n + 1] for n, word in zip(numbers, alignment.hard(), strict=True))


def test_steps_say_which_sentence_they_show() -> None:
    result = regard.translate("regard-de-en", " ".join(SENTENCES[:3]), steps=True, num_return_sequences=3)
    view = result.view_data()
    assert view["text"] == SENTENCES[0] and "3 sentences" in view["notes"][0]
    assert result.texts[0].translations[0].text in view["notes"][0]
    decoded = regard.decode(" ".join(SENTENCES[:3]), model="regard-de-en", num_beams=2)
    assert decoded.text == SENTENCES[0] and len(decoded.trace["rows"]) == 1 and "3 sentences" in decoded.notes[0]
    unread = regard.decode("Мне нравится этот фильм", model="regard-de-en", num_beams=2)
    assert "does not look like German" in unread.notes[-2] and "vocabulary does not have" in unread.notes[-1]


def test_views_of_one_run_show_the_first_sentence() -> None:
    text = " ".join(SENTENCES[:3])
    first = regard.translate("regard-de-en", SENTENCES[0]).texts[0].translations[0].text
    notes: list[str] = []
    looked = regard.look(text, model="regard-de-en", on_event=lambda event: notes.append(event.message))
    assert looked.texts == [SENTENCES[0], first] and looked.notes == notes and "3 sentences" in notes[0]
    drawn = regard.figure(text, model="regard-de-en", ablation=False)
    assert (drawn.text, drawn.target) == (SENTENCES[0], first) and "3 sentences" in drawn.notes[0]
    assert regard.look(text, "A dog.", model="regard-de-en").texts == [text, "A dog."]
    assert not regard.look(SENTENCES[0], model="regard-de-en").notes


def test_a_trace_has_every_sentence(tmp_path: Path) -> None:
    texts = [" ".join(SENTENCES[:2]), "", SENTENCES[2]]
    regard.translate("regard-de-en", texts, num_beams=2, trace=tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document["about"]["texts"] == [*SENTENCES[:2], "", SENTENCES[2]]
    assert [row["row"] for row in document["rows"]] == [0, 1, 3]


def test_incomplete_translations_are_counted() -> None:
    assert is_short("Ein Satz.", 20, 5) and not is_short("Ein Satz.", 20, 11) and not is_short("Ein Satz.", 5, 1)
    assert is_short("Er liest; wir singen; sie tanzen; ihr lacht.", 20, 11), "a clause is missing"
    sentence = TranslatedSentence((0, 9), (0, 2), (1,), -1.0, -1.0, finished=False, cut=False, short=True)
    count = CompletenessCount()
    count.add("Ein Satz. Noch einer.", [sentence, replace(sentence, finished=True, short=False)])
    limit, short = count.notes(35)
    assert "1 of 2" in limit and "length limit" in limit and "1 of 2" in short and "shorter" in short
    assert "“Ein Satz.”" in short
