"""Sentence splitting: handwritten cases, and no text of a paragraph is lost or reordered."""

# ruff: noqa: RUF001 (the cases contain similar quotation marks and dashes)

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.corpus.sentences import split_sentences

# A bar marks a sentence boundary.
CASES = [
    "He went home. | She stayed.",
    "Is it true? | Yes! | No one knew.",
    "One sentence without an end",
    "Mr. Darwin met Mrs. Rook and Dr. Squiers at St. Paul's. | They talked.",
    "The U.S. Senate met. | It voted.",
    "He moved to the U.S. | The move was sudden.",
    "He moved to the U.S. in 1938. | He stayed.",
    "See e.g. Smith for this, i.e. John Smith. | Others agree.",
    "It costs 3.14 dollars, or 1,000.50 in all. | That is much.",
    "J. R. R. Tolkien wrote it. | C. S. Lewis read it.",
    "The work of J. P. Lesley was key. | Many knew it.",
    "George W. Bush spoke. | Then he left.",
    "He served during World War I. | During World War II he did not.",
    "In c. 540 BC he was born. | He died ca. 480 BC.",
    "It was 5 p.m. on Monday. | We left at 6 a.m. | The sun rose.",
    "It opened at 9 a.m. Eastern time. | It closed early.",
    "See vol. 2, p. 5, and Fig. 3. | Then go on.",
    "See Vol. II, Chap. IV, for more. | It is long.",
    "No. 5 is alive. | No. | He is dead.",
    "It met on Oct. 13, 1910, in Mass. and again on Nov. 2. | All came.",
    "Smith et al. (2003) showed this. | Jones et al. | The end.",
    "Apples, pears, etc. were sold. | Nothing else was.",
    "They sold apples, pears, etc. | The rest they kept.",
    "Acme Inc. Chairman Bob Ray left. | Acme Inc. | It failed.",
    "Martin Luther King Jr. Parkway is near. | It is wide.",
    '"Come here," he said. | "Now!" | He waited.',
    '"Why?" he asked. | "Because."',
    '"Why?" I asked. | Nobody answered.',
    '"What can bring her here?" said Marianne. | She left.',
    '"Is this so?" Mr. Apricot inquired. | Silence.',
    '"Run!" Tom shouted. | They ran.',
    'He said "no." | She said "yes."',
    "He said ‘no.’ | She said “yes.” | They left.",
    "(It was late.) | He slept.",
    "He slept (it was late). | She did not.",
    "It ended [so they say]. | Nobody saw it.",
    "Wait... what is it? | Nothing.",
    "I have been to four of them... | Society is varied.",
    "He found reason . . . and then slept. | Good.",
    "He shot him. . . . | Mind you, I saw it.",
    "Who knows… | The end came.",
    "What?! | You here?",
    "Oh! but for friends I would go. | I stay.",
    "Alas! alas! when will it end? | Never.",
    "Yahoo! was a company. | It is gone.",
    "1. The first point is this. | It matters.",
    "A. The second point.",
    "IV. The fourth point. | It ends.",
    "(a) The third.",
    "CHAPTER XXIV. | The Return.",
    'The process is called "pasteurization". | It is old.',
    "Punch's voice takes the cruelty out of Punch. | According to Crone, it does.",
    "The area is about . | However the centre is near.",
    "In 2012 there were 500. | 200 of them left.",
    "It was cited.[12] | Others were not.[3][4] | The end.",
    "_He came._ | She went.",
    "Brown v. Board of Education was in 1954. | It changed much.",
    "Thoughts of M. Pascal on religion. | They are deep.",
    "The library of Leo E. LaMontagne closed. | It was old.",
    "He has a Ph.D. in physics. | She has a Ph.D. | They teach.",
    "Washington, D.C. is hot. | So is Austin, Tex. in May.",
    "Élan. | Été comes; École too. | Ömer left.",
    "He fell ill. | Tom came.",
    "The mass. | That is all.",
    "She saw node.js and example.com. | Both work.",
    "He wrote 2 + 2 = 4. | Q.E.D.",
    "It fell to 3. | Mary rose to 5.",
    "Let it be polynomial in Π. | Similarly for n.",
    "Two spaces.  | Follow here.",
    "Two spaces.  but small. | Then big.",
    "The end.\t| After a tab.",
    "He left. | — She stayed.",
    "This is so; that is not: here. | There.",
]


@pytest.mark.parametrize("case", CASES)
def test_handwritten_cases(case: str) -> None:
    expected = [part.strip() for part in case.split("|")]
    text = case.replace("| ", "")
    assert [text[start:end] for start, end in split_sentences(text)] == expected


def check_nothing_is_lost(text: str, *, any_language: bool = False) -> None:
    spans = split_sentences(text, any_language=any_language)
    end = 0
    for start, stop in spans:
        assert end <= start < stop
        assert not text[end:start].strip()
        assert text[start:stop] == text[start:stop].strip()
        end = stop
    assert not text[end:].strip()


WORDS = st.sampled_from(
    [
        *(
            "Mr.",
            "U.S.",
            "e.g.",
            "p.m.",
            "etc.",
            "No.",
            "I.",
            "J.",
            "É.",
            "5",
            "3.14",
            "the",
            "The",
            "said",
            "é",
            "漢字。",
        ),
        *(
            ".",
            "?",
            "!",
            "...",
            "…",
            ". . .",
            '."',
            '"',
            "'",
            "(",
            ").",
            "[1]",
            "_",
            "—",
            " ",
            "  ",
            "\t",
            "\u00a0",
            "\u2028",
        ),
    ]
)


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(WORDS).map(" ".join), st.lists(WORDS).map("".join)))
def test_nothing_is_lost(text: str) -> None:
    check_nothing_is_lost(text)


def test_blank_text_has_no_sentences() -> None:
    assert split_sentences("") == split_sentences(" \t\n") == []


def test_line_breaks_inside_a_sentence_count_as_spaces() -> None:
    assert split_sentences("One.\nTwo.") == [(0, 4), (5, 9)]


@pytest.mark.parametrize(
    "text", ["." * 300_000, ". " * 150_000, '."' * 150_000, "a" * 300_000 + ". B", "A. " * 100_000]
)
def test_time_is_linear_in_the_length(text: str) -> None:
    check_nothing_is_lost(text)  # would take minutes if the time were quadratic


def test_sentences_of_real_text(shared_data: Callable[[str], Path]) -> None:
    with lzma.open(shared_data("corpus/heldout.txt.xz"), "rt", encoding="utf-8") as file:
        paragraphs = [line for _, line in zip(range(2000), file, strict=False)]
    sentences = [line[start:end] for line in paragraphs for start, end in split_sentences(line)]
    for line in paragraphs:
        check_nothing_is_lost(line)
    assert 2.2 < len(sentences) / len([line for line in paragraphs if line.strip()]) < 4.5
    after_title = [text for text in sentences if text.endswith((" Mr.", " Mrs.", " Dr.", "e.g.", "i.e."))]
    assert not after_title
    assert sum(text[0].islower() for text in sentences) < len(sentences) / 100


ANY_LANGUAGE = [
    "Das ist gut.\n| der Mann ging\nnach Hause.\n| „die Frau schläft.“\n| это кот.",
    "Der Hund schläft. | Es ist schön! | Wie geht es dir?",
    "Wir haben z. B. Hunde, z.B. Pudel, d. h. kleine. | Sie bellen.",
    "Dr. Müller wohnt in Nr. 5. | Er ist nett.",
    "Am 3. Oktober 1990 war das im 20. Jahrhundert. | Er ist 30. | Sie ist 20.",
    "Das kostet 3.5 Euro, ca. 4 Dollar. | Gut.",
    "Äpfel, Birnen usw. sind da. | Äpfel, Birnen usw. | Die Katze schläft.",
    "„Komm her!“ | Er ging. | »Nein.« | Sie blieb.",
    "„Komm her!“, sagte er. | Dann ging er.",
    "Warte... | Was ist das? | Nichts … | Gut.",
    "Bonjour ! | Ça va ? | « Oui ! » | M. Dupont dort.",
    "« Viens ! » dit-il. | Elle vient.",
    "hallo. | wie geht es dir? | gut, danke dr. müller.",
    "¿Dónde está? | ¡Aquí! | El Sr. García duerme.",
    "你好。|世界！|你是谁？|「好。」|他说。",
    "「はい。」と言った。|次です。",
    "Где вокзал? | Там. | Спасибо!",
    "यह अच्छा है। | वह कहाँ है?",
]


@pytest.mark.parametrize("case", ANY_LANGUAGE)
def test_sentences_of_any_language(case: str) -> None:
    text = case.replace("| ", "").replace("|", "")
    found = [text[start:end] for start, end in split_sentences(text, any_language=True)]
    assert found == [part.strip() for part in case.split("|")]


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(WORDS).map(" ".join), st.lists(WORDS).map("".join)))
def test_nothing_is_lost_in_any_language(text: str) -> None:
    check_nothing_is_lost(text, any_language=True)
