"""Word tags: predicted at the first piece, with offsets in the original text, for texts of any length."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.examples import TaggedExample
from regard.data.readers import read_tagged_examples, split_words
from regard.errors import InputError
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, predict, score
from regard.tasks.inputs import InputBuilder
from regard.tasks.task import Prediction
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from tests.tasks.conftest import Encoders, Makers
from tests.tasks.table_model import TableModel

CPU = torch.device("cpu")
TAGS = {"film": "B-A", "good": "I-A", "day": "B-B", "water": "I-B"}
TASK = TokenClassification(["O", "B-A", "I-A", "B-B", "I-B"])


def tagged_example(text: str, tags: str | None = None) -> TaggedExample:
    """A text whose words are separated by single spaces."""
    words, offset = [], 0
    for word in text.split(" "):
        words.append((offset, offset + len(word)))
        offset += len(word) + 1
    return TaggedExample(text, tuple(words), None if tags is None else tuple(tags.split()))


def table_model(rows: InputBuilder, encoder_of: Encoders, *, length: int = 64) -> FineTunedModel:
    """Predicts the tags in `TAGS` from the tokens, and O for all others."""
    table = torch.zeros(rows.tokenizer.size, TASK.num_outputs)
    table[:, 0] = 1.0
    for word, tag in TAGS.items():
        for spelled in {word, f"Ġ{word}"} & rows.tokenizer.vocabulary.keys():
            table[rows.tokenizer.id(spelled), TASK.labels.index(tag)] = 5.0
    return FineTunedModel(TASK, TableModel(encoder_of(rows.family), table), rows.tokenizer, length)


def run_model(fine_tuned: FineTunedModel, *examples: TaggedExample) -> list[Prediction]:
    found = predict(fine_tuned, examples, device=CPU)
    for example, one in zip(examples, found, strict=True):
        assert len(one["tags"]) == len(example.words)
        for entity in one["entities"]:
            assert entity["text"] == example.text[entity["start"] : entity["end"]]
    return found


def test_labels_are_learned_from_the_training_data() -> None:
    task = TokenClassification.from_examples(
        [tagged_example("x y z", "O B-PER I-PER"), tagged_example("x"), tagged_example("x", "B-LOC")]
    )
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert task.num_outputs == 5
    assert TokenClassification.from_dict(task.to_dict()).labels == task.labels
    with pytest.raises(InputError, match="all tags of the training data are 'O'"):
        TokenClassification.from_examples([tagged_example("x y", "O O")])


def test_a_tag_missing_from_the_training_data(rows_of: Makers) -> None:
    with pytest.raises(InputError, match=r"label 'B-C'.*has 'O', 'B-A'"):
        TASK.preprocess([tagged_example("x y", "O B-C")], rows_of("bert"))
    with pytest.raises(InputError, match="the label 'B-C'"):
        TASK.check(tagged_example("x y", "O B-C"))
    TASK.check(tagged_example("x y", "O B-A"))
    TASK.check(tagged_example("x y"))


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_a_word_is_tagged_at_its_first_piece(rows_of: Makers, family: str) -> None:
    rows = rows_of(family)
    example = tagged_example("the zebra film yes", "O B-A I-A B-B")
    (item,) = TASK.preprocess([example], rows)
    (row,) = item.sequences
    assert [rows.tokenizer.token(row.ids[offset]).lstrip("Ġ") for offset in row.positions or ()] == [
        "the",
        "z",
        "film",
        "y",
    ]
    assert (item.extra, item.target) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert TASK.preprocess([tagged_example("the")], rows)[0].target is None


def test_the_loss_is_the_mean_over_words(rows_of: Makers) -> None:
    task = TokenClassification(["O", "B-A", "I-A"])
    items = task.preprocess([tagged_example("x y", "O B-A"), tagged_example("z", "I-A")], rows_of("bert"))
    found = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
    each = [math.log(math.e + 2) - 1, math.log(2 + math.exp(2)), math.log(2 + math.exp(3)) - 3]
    assert task.loss(found, items).item() == pytest.approx(sum(each) / 3, abs=1e-6)


def test_entities_and_their_probability(rows_of: Makers, encoder_of: Encoders) -> None:
    fine_tuned = table_model(rows_of("bert"), encoder_of)
    (one,) = run_model(fine_tuned, tagged_example("the film good the day film"))
    assert one["tags"] == ["O", "B-A", "I-A", "O", "B-B", "B-A"]
    assert [(e["start"], e["end"], e["text"], e["label"]) for e in one["entities"]] == [
        (4, 13, "film good", "A"),
        (18, 21, "day", "B"),
        (22, 26, "film", "A"),
    ]
    probability = math.exp(5) / (math.exp(5) + math.exp(1) + 3)
    assert one["entities"][0]["probability"] == pytest.approx(probability)


@pytest.mark.parametrize("lost", ["\x01", "\ufe0f", "\u200d", "\u0301"])
def test_a_word_that_the_tokenizer_drops_shifts_nothing(rows_of: Makers, encoder_of: Encoders, lost: str) -> None:
    rows = rows_of("bert")
    text = f"film {lost} good {lost} {lost} day {lost}"
    example = tagged_example(text, "B-A O I-A O O B-B O")
    assert rows.tokens([lost])[0].ids == []
    (item,) = TASK.preprocess([example], rows)
    assert (item.extra, item.target) == ([0, 2, 5], [1, 2, 3])
    fine_tuned = table_model(rows, encoder_of)
    (one,) = run_model(fine_tuned, example)
    assert one["tags"] == ["B-A", "O", "I-A", "O", "O", "B-B", "O"]
    assert score(fine_tuned, [example], device=CPU)["accuracy"] == 100
    (nothing,) = run_model(fine_tuned, tagged_example(f"{lost} {lost}"))
    assert (nothing["tags"], nothing["entities"]) == (["O", "O"], [])
    assert run_model(fine_tuned, TaggedExample("", ()))[0]["tags"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("F\u00cdLM  d\u00e0y", [(0, 4, "F\u00cdLM"), (6, 9, "d\u00e0y")]),
        ("e\u0301e\u0301 fi\u0301lm", [(5, 10, "fi\u0301lm")]),
        ("\U0001f600\U0001f468\u200d\U0001f469 day \U0001f600", [(5, 8, "day")]),
        ("\ufb01 \u4e2dday\u4e2d film", [(8, 12, "film")]),
        (" \u3000 day\u00a0film\t", [(3, 6, "day"), (7, 11, "film")]),
    ],
)
def test_offsets_refer_to_the_original_text(
    rows_of: Makers, encoder_of: Encoders, text: str, expected: list[tuple[int, int, str]]
) -> None:
    (one,) = run_model(table_model(rows_of("bert"), encoder_of), TaggedExample(text, split_words(text)))
    assert [(e["start"], e["end"], e["text"]) for e in one["entities"]] == expected


def test_offsets_of_a_byte_level_tokenizer(rows_of: Makers, encoder_of: Encoders) -> None:
    for family in ("roberta", "gpt2"):
        (one,) = run_model(table_model(rows_of(family), encoder_of), tagged_example("\U0001f600\u00e9 film \u4e2d day"))
        assert [(e["start"], e["end"], e["text"]) for e in one["entities"]] == [(3, 7, "film"), (10, 13, "day")]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@given(text=st.text("ab film.-\u00c9\u0301\u4e2d\U0001f600\ufe0f\x01\u200d'", max_size=25))
def test_each_word_has_its_first_token(rows_of: Makers, family: str, text: str) -> None:
    rows = rows_of(family, 256)
    example = TaggedExample(text, split_words(text))
    (encoding,) = rows.tokens([text])
    items = TASK.preprocess([example], rows)
    assert len(items) <= 1
    heads = {
        word: offset - 1
        for item in items
        for word, offset in zip(item.extra, item.sequences[0].positions or (), strict=True)
    }
    taken = -1
    for word, (start, end) in enumerate(example.words):
        inside = [token for token, (a, b) in enumerate(encoding.offsets) if a < end and b > start and token > taken]
        assert heads.get(word) == (inside[0] if inside else None)
        taken = heads.get(word, taken)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("length", [20, 64])
def test_5000_words_have_5000_tags(rows_of: Makers, encoder_of: Encoders, family: str, length: int) -> None:
    rng = random.Random(0)
    known = {"bert": [*TAGS], "gpt2": ["film", "day"]}[family]
    words = ["x" if number == 0 else rng.choice([*known, "xy", "zebra"]) for number in range(5000)]
    (one,) = run_model(table_model(rows_of(family), encoder_of, length=length), tagged_example(" ".join(words)))
    assert one["tags"] == [TAGS.get(word, "O") for word in words]


def test_the_middle_of_a_long_text_is_tagged_as_a_single_window(
    rows_of: Makers, encoder_of: Encoders, tokenizers: dict[str, Tokenizer]
) -> None:
    rows, rng = rows_of("bert"), random.Random(1)
    words = [rng.choice(["the", "a", "of", "film", "good", "day", "water"]) for _ in range(5000)]
    torch.manual_seed(1)
    tuned = EncoderWithHead.from_encoder(encoder_of("bert"), TASK).eval()
    torch.nn.init.normal_(tuned.head.output.weight)
    fine_tuned = FineTunedModel(TASK, tuned, tokenizers["bert"], rows.max_length)
    example = tagged_example(" ".join(words))
    (whole,) = run_model(fine_tuned, example)
    assert len(set(whole["tags"])) == 5
    items = TASK.preprocess([example], rows)
    assert sorted(word for item in items for word in item.extra) == list(range(5000))
    for number in (0, len(items) // 2, len(items) - 1):
        mine, token_positions = items[number].extra, items[number].sequences[0].positions or []
        start = mine[0] - (token_positions[0] - 1)
        (alone,) = run_model(fine_tuned, tagged_example(" ".join(words[start : start + len(items[number]) - 2])))
        assert alone["tags"][token_positions[0] - 1 : token_positions[-1]] == whole["tags"][mine[0] : mine[-1] + 1]
        assert start == 0 or token_positions[0] - 1 >= 15
        assert mine[-1] == 4999 or len(items[number]) - 2 - token_positions[-1] >= 15


def test_every_word_of_conll_has_a_token(shared_data: Callable[[str], Path]) -> None:
    read = read_tagged_examples(str(shared_data("conll2003/eng.testa")))
    rows = InputBuilder(Tokenizer.open(shared_data("vocab-bert-base-uncased")), family="bert", max_length=256)
    items = TokenClassification.from_examples(read.examples).preprocess(read.examples, rows)
    assert sum(len(item.extra) for item in items) == sum(len(example.words) for example in read.examples) == 51_362


def test_scores_are_of_entities() -> None:
    examples = [tagged_example("a b c d", "B-A I-A O B-B"), tagged_example("e", "B-A")]
    scores = TASK.compute_metrics(examples, [{"tags": ["B-A", "I-A", "O", "B-A"]}, {"tags": ["B-A"]}])
    assert scores["precision"] == pytest.approx(200 / 3)
    assert scores["recall"] == pytest.approx(200 / 3)
    assert scores["f1"] == pytest.approx(200 / 3)
    assert scores["accuracy"] == 80
    assert set(scores) == {"precision", "recall", "f1", "accuracy"}
