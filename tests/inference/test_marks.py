"""Blank markers, targets, and filled texts."""

from __future__ import annotations

import pytest

from regard.errors import InputError
from regard.inference.masked_lm import find_blanks, target_pieces
from regard.text import Tokenizer
from tests.inference.conftest import Loaded


def mask_of(tokenizer: Tokenizer) -> int:
    assert tokenizer.mask_token_id is not None
    return tokenizer.mask_token_id


@pytest.mark.parametrize(
    ("text", "blanks"),
    [
        ("they like to _.", ["_"]),
        ("they like to ___ and (____)", ["___", "____"]),
        ("_ _", ["_", "_"]),
        ("the _'s day, a _-long", ["_", "_"]),
        ("[MASK] day and _", ["[MASK]", "_"]),
        ("[MASK][MASK]", ["[MASK]", "[MASK]"]),
        ("snake_case _private __init__ trailing_ 1_000 é_é then _", ["_"]),
    ],
)
def test_markers_of_blanks(text: str, blanks: list[str], bert: Loaded) -> None:
    _, tokenizer = bert
    found = find_blanks(text, tokenizer, mask_of(tokenizer))
    assert [text[start:end] for start, end in found.spans] == blanks
    assert [found.ids[position] for position in found.positions] == [tokenizer.mask_token_id] * len(blanks)
    assert found.ids.count(mask_of(tokenizer)) == len(blanks)


def test_the_last_blank_is_the_stand_alone_marker(bert: Loaded) -> None:
    _, tokenizer = bert
    text = "snake_case and _"
    assert find_blanks(text, tokenizer, mask_of(tokenizer)).spans == [(len(text) - 1, len(text))]


@pytest.mark.parametrize("text", ["no blank here", "snake_case", "[mask]", ""])
def test_a_text_without_a_blank_is_refused_with_an_example(text: str, bert: Loaded) -> None:
    with pytest.raises(InputError, match=r"mark it with _ or \[MASK\], as in"):
        find_blanks(text, bert[1], mask_of(bert[1]))


def test_the_mask_token_of_a_model_absorbs_the_space_before_it(roberta: Loaded) -> None:
    _, tokenizer = roberta
    expected = tokenizer.encode("the <mask> day<mask>").ids
    for text in ("the _ day<mask>", "the [MASK] day[MASK]", "the <mask> day<mask>"):
        found = find_blanks(text, tokenizer, mask_of(tokenizer))
        assert found.ids == expected
        assert [found.after_space(blank) for blank in (0, 1)] == [True, False]


def test_targets_are_encoded_by_the_tokenizer(bert: Loaded) -> None:
    _, tokenizer = bert
    words = [" Film", "the", "THE", "##s", "."]
    for space in (False, True):
        found = target_pieces(words, tokenizer, after_space=space)
        assert [tokenizer.token(number) for (number,) in found] == ["film", "the", "##s", "."]


def test_a_byte_level_target_includes_the_space_before_it(roberta: Loaded) -> None:
    _, tokenizer = roberta

    def target_tokens(*targets: str, after_space: bool) -> list[str]:
        return [
            " ".join(map(tokenizer.token, word)) for word in target_pieces(targets, tokenizer, after_space=after_space)
        ]

    assert target_tokens("the", "film", "Ġday", after_space=True) == ["Ġthe", "Ġfilm", "Ġday"]
    assert target_tokens("the", "good", "Ġday", after_space=False) == ["the", "good", "Ġday"]
    assert target_tokens("good", after_space=True) == ["Ġ good"]  # in the vocabulary only without a space


def test_targets_that_the_vocabulary_cannot_spell_are_all_reported(bert: Loaded) -> None:
    with pytest.raises(InputError, match=r"'ß€' is \[UNK\]; '' is nothing; leave them out"):
        target_pieces(["film", "films", "ß€", ""], bert[1], after_space=True)


@pytest.mark.parametrize(
    ("text", "tokens", "filled"),
    [
        ("A Good _.", ["film"], "A Good film."),
        ("A Good film _.", ["##s"], "A Good films."),
        ("It _ [MASK]!", ["was", "good"], "It was good!"),
        ("It was[MASK][MASK]", ["good", "##s"], "It was goods"),
        ("Good film _ we love it", ["."], "Good film. we love it"),
        ("(_) ___", ["the", "[UNK]"], "(the) [UNK]"),
        ("_, they said", ["##s"], "s, they said"),
    ],
)
def test_the_filled_text(text: str, tokens: list[str], filled: str, bert: Loaded) -> None:
    _, tokenizer = bert
    marked = find_blanks(text, tokenizer, mask_of(tokenizer))
    assert marked.fill(tokenizer, [(tokenizer.id(token),) for token in tokens]) == filled


@pytest.mark.parametrize(
    ("text", "tokens", "filled"),
    [("The _ was _.", ["Ġfilm", "good"], "The film wasgood."), ("_ was", ["the"], "the was")],
)
def test_the_filled_text_of_byte_level_tokens(text: str, tokens: list[str], filled: str, roberta: Loaded) -> None:
    _, tokenizer = roberta
    marked = find_blanks(text, tokenizer, mask_of(tokenizer))
    assert marked.fill(tokenizer, [(tokenizer.id(token),) for token in tokens]) == filled
