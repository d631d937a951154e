"""The six-words lesson: the deck's vocabulary, its summed loss, and step-by-step decoding."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import InputError
from regard.lessons.six_words import PAIRS, TARGET_WORDS, SixWordsLesson, decode, new_translator, train_six_words


@pytest.fixture(scope="module")
def lesson() -> SixWordsLesson:
    return train_six_words()


def test_the_vocabulary_and_the_pairs_are_the_decks() -> None:
    assert dict(enumerate(TARGET_WORDS)) == {0: "a", 1: "am", 2: "I", 3: "thanks", 4: "student", 5: "<eos>"}
    assert PAIRS == (("je suis étudiant", "I am a student <eos>"), ("merci", "thanks <eos>"))


def test_the_model_learns_both_sentences(lesson: SixWordsLesson) -> None:
    for pair in lesson.pairs:
        assert [step.chosen for step in pair.decoding] == pair.target
        for row, word in zip(pair.after, pair.target, strict=True):
            assert row[TARGET_WORDS.index(word)] > 0.95
    assert [" ".join(pair.target) for pair in lesson.pairs] == ["I am a student <eos>", "thanks <eos>"]
    assert lesson.losses[-1] < 0.2 < 10 < lesson.losses[0]
    assert len(lesson.losses) == 61


def test_before_training_the_probabilities_are_nearly_uniform(lesson: SixWordsLesson) -> None:
    for pair in lesson.pairs:
        assert min(row[TARGET_WORDS.index(word)] for row, word in zip(pair.before, pair.target, strict=True)) < 0.3
    assert [step.chosen for step in lesson.pairs[0].decoding_before] != lesson.pairs[0].target


def test_every_row_is_a_distribution_over_six_words(lesson: SixWordsLesson) -> None:
    for pair in lesson.pairs:
        rows = [*pair.before, *pair.after, *(step.probabilities for step in [*pair.decoding, *pair.decoding_before])]
        assert {len(row) for row in rows} == {6}
        assert [sum(row) for row in rows] == pytest.approx([1] * len(rows), abs=1e-5)


def test_the_loss_is_summed_over_the_outputs(lesson: SixWordsLesson) -> None:
    """E13: seven outputs, one term each; a mean would be a seventh of it."""
    for table, loss in (("before", lesson.losses[0]), ("after", lesson.losses[-1])):
        terms = [
            -math.log(row[TARGET_WORDS.index(word)])
            for pair in lesson.pairs
            for row, word in zip(getattr(pair, table), pair.target, strict=True)
        ]
        assert len(terms) == 7
        assert sum(terms) == pytest.approx(loss, rel=1e-4)


def test_each_step_reads_the_chosen_words_and_agrees_with_the_full_pass(lesson: SixWordsLesson) -> None:
    """Decoding token by token with a cache must equal one pass over the whole sentence."""
    pair = lesson.pairs[0]
    for number, step in enumerate(pair.decoding):
        assert step.prefix == ["<eos>", *pair.target[:number]]
        assert step.probabilities == pytest.approx(pair.after[number], abs=1e-5)
        assert TARGET_WORDS[max(range(6), key=step.probabilities.__getitem__)] == step.chosen


def test_a_pair_does_not_depend_on_its_longer_neighbor() -> None:
    """The batch is padded: "merci" alone must give the same first output."""
    model = new_translator(seed=3)
    with torch.no_grad():
        alone = model.logits(model(torch.tensor([[3]]), torch.tensor([[5]])))[0, 0].softmax(-1).tolist()
    assert train_six_words(epochs=1, seed=3).pairs[1].before[0] == pytest.approx(alone, abs=1e-6)


def test_decoding_ends_without_an_end_token(monkeypatch: pytest.MonkeyPatch) -> None:
    model = new_translator()
    with torch.no_grad():
        model.decoder.layers[-1].ffn_residual.norm.weight.zero_()  # the last state is then the bias, whatever the input
        model.decoder.layers[-1].ffn_residual.norm.bias.copy_(model.decoder_embedding.tokens.weight[2] * 100)
    assert [step.chosen for step in decode(model, "merci")] == ["I"] * 6


def test_the_seed_determines_the_result_and_the_callers_random_state_stays() -> None:
    before = torch.get_rng_state()
    first, again, other = (train_six_words(epochs=2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.losses != other.losses
    assert torch.equal(torch.get_rng_state(), before)


def test_on_epoch_is_called_for_every_epoch() -> None:
    losses: list[float] = []
    lesson = train_six_words(epochs=3, on_epoch=losses.append)
    assert losses == lesson.losses[:3]


def test_invalid_arguments_raise() -> None:
    with pytest.raises(InputError, match="epochs must be at least 1, not 0"):
        train_six_words(epochs=0)
    with pytest.raises(InputError, match="learning rate must be a number above 0, not -1"):
        train_six_words(learning_rate=-1)
