"""Benchmarks compared with sums of transformers' log-softmax, one candidate at a time."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.inference.benchmark import PUBLISHED, TASKS, BenchmarkItem, Ending, published
from tests.inference.conftest import Loaded
from tests.inference.likelihood.conftest import Reference
from tests.inference.measure import run_benchmark

WORDS = ("the", "film", "day", "good", "a", "an", "of", "so", "dull", "she", "said", "naïve")


def text(rng: random.Random, low: int, high: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))


def questions(count: int, endings: int, *, same_context: bool) -> list[BenchmarkItem]:
    rng = random.Random(count)
    items = []
    for number in range(count):
        context, ending = text(rng, 1, 4), f" {text(rng, 1, 2)}"
        candidates = tuple(
            Ending(context, f" {text(rng, 1, 3)}") if same_context else Ending(text(rng, 1, 4), ending)
            for _ in range(endings)
        )
        items.append(BenchmarkItem(candidates, rng.randrange(endings), f"file line {number + 1}"))
    return items


def row(gpt: Loaded, candidate: Ending) -> tuple[list[int], int]:
    """Encode context and ending as one text, to check that encoding them separately gives the same ids."""
    ids = [0, *gpt[1].encode(candidate.context + candidate.ending, add_special_tokens=False).ids]
    return ids, 1 + len(gpt[1].encode(candidate.context, add_special_tokens=False).ids)


@pytest.mark.parametrize(("task", "endings"), [("hellaswag", 4), ("piqa", 2), ("winogrande", 2)])
def test_choices_equal_single_scores(task: str, endings: int, gpt: Loaded, theirs: Reference) -> None:
    items = questions(90, endings, same_context=task != "winogrande")  # more than one batch
    likely, likely_normalized = [], []
    for item in items:
        values = [theirs(*row(gpt, candidate))[0] for candidate in item.candidates]
        normalized_values = [v / len(c.ending[1:].encode()) for v, c in zip(values, item.candidates, strict=True)]
        likely.append(replace(item, label=values.index(max(values))))
        likely_normalized.append(replace(item, label=normalized_values.index(max(normalized_values))))
    progress: list[int] = []
    found = run_benchmark(*gpt, task, items, on_progress=progress.append)
    assert (found.task, found.n, found.cut, found.perplexity) == (task, 90, 0, None)
    right = sum(item.label == best.label for item, best in zip(items, likely, strict=True))
    assert found.accuracy == pytest.approx(100 * right / 90)
    assert found.chance == pytest.approx(100 / endings)
    assert found.interval[0] < found.accuracy < found.interval[1]
    assert progress == [0, 64, 90]
    assert run_benchmark(*gpt, task, likely).accuracy == 100
    other = run_benchmark(*gpt, task, likely_normalized)
    if task == "winogrande":
        assert (other.accuracy, other.accuracy_normalised) == (100, None)  # both endings are the same
    else:
        assert (other.accuracy < 100, other.accuracy_normalised) == (True, 100)


def test_lambada_equals_single_scores(gpt: Loaded, theirs: Reference) -> None:
    rng = random.Random(5)
    items = [BenchmarkItem((Ending(text(rng, 1, 4), f" {text(rng, 1, 1)}"),), 0, "x") for _ in range(20)]
    # The model's own first choice, if it is a valid text, counts as correct.
    for item_number, context in enumerate(("the film", "so dull")):
        items[item_number] = BenchmarkItem((Ending(context, first_choice(gpt, context)),), 0, "x")
    expected = [theirs(*row(gpt, item.candidates[0])) for item in items]
    found = run_benchmark(*gpt, "lambada", items)
    assert found.perplexity == pytest.approx(math.exp(-sum(value for value, _ in expected) / 20), rel=1e-5)
    assert found.accuracy == 100 * sum(greedy for _, greedy in expected) / 20 > 0
    assert (found.accuracy_normalised, found.chance) == (None, None)


def first_choice(gpt: Loaded, context: str) -> str:
    import torch

    model, tokenizer = gpt
    ids = torch.tensor([[0, *tokenizer.encode(context, add_special_tokens=False).ids]])
    with torch.no_grad():
        order = model.logits(model(ids))[0, -1].argsort(descending=True).tolist()  # type: ignore[operator]
    return tokenizer.decode([order[0]])


def test_a_long_context_is_cut_at_its_beginning(gpt: Loaded, theirs: Reference) -> None:
    """With 48 positions a row holds 49 ids; the last one is not read."""
    long = Ending("of " * 30 + "she", " day")
    ids, scored = row(gpt, long)
    assert len(ids) > 49
    found = run_benchmark(*gpt, "lambada", [BenchmarkItem((long,), 0, "x")])
    expected, _ = theirs(ids[-49:], scored - (len(ids) - 49))
    assert found.cut == 1
    assert found.perplexity == pytest.approx(math.exp(-expected), rel=1e-5)


def test_an_ending_that_is_too_long_is_read_in_windows(gpt: Loaded, theirs: Reference) -> None:
    long = Ending("of it", " " + "z" * 60)
    ids, scored = row(gpt, long)
    tail = ids[scored - 1 :]
    assert len(tail) == 62
    expected = theirs(tail[:49], 1)[0] + theirs(tail[24:], 25)[0]  # the tokens after ids 0 to 47, and after 48 to 60
    found = run_benchmark(*gpt, "lambada", [BenchmarkItem((long,), 0, "x")])
    assert found.cut == 1
    assert found.perplexity == pytest.approx(math.exp(-expected), rel=1e-5)


@pytest.mark.parametrize(("letters", "cut"), [(46, 0), (47, 0), (48, 1)])
def test_the_cut_begins_where_the_positions_end(letters: int, cut: int, gpt: Loaded) -> None:
    """The begin token, the letters and one token to predict: all but the last are read."""
    item = BenchmarkItem((Ending("z" * letters, " day"),), 0, "x")
    assert run_benchmark(*gpt, "lambada", [item]).cut == cut


def test_unsupported_models_and_endings_are_refused(gpt: Loaded, without_begin: Loaded, bert: Loaded) -> None:
    def run(model: Loaded, candidate: Ending) -> None:
        run_benchmark(*model, "lambada", [BenchmarkItem((candidate,), 0, "file line 3")])

    with pytest.raises(InputError, match=r"file line 3: .*no context, .*no begin token"):
        run(without_begin, Ending("", " day"))
    run(gpt, Ending("", " day"))
    with pytest.raises(InputError, match="a benchmark needs a model that predicts the next token"):
        run(bert, Ending("a", " day"))
    with pytest.raises(InputError, match="at least one example"):
        run_benchmark(*gpt, "piqa", [])


@given(context=st.text(max_size=20), ending=st.text(min_size=1, max_size=20))
def test_context_and_ending_encode_the_same_separately_and_together(context: str, ending: str, gpt: Loaded) -> None:
    """So the tokens of an ending are the same after every context."""
    first, second = context.rstrip(), f" {ending.strip()}"
    if not ending.strip():
        return
    tokens = gpt[1]
    separate = tokens.encode(first, add_special_tokens=False).ids + tokens.encode(second, add_special_tokens=False).ids
    assert separate == tokens.encode(first + second, add_special_tokens=False).ids


def test_the_table_of_the_lecture() -> None:
    assert {task for figures in PUBLISHED.values() for task in figures} == set(TASKS)
    assert published("lambada")["GPT3-175B"] == 3.00
    assert published("winogrande")["GPT-J-6B"] == 65.3
    assert published("hellaswag")["Curie"] == 68.5
    assert published("piqa")["Davinci"] == 83
