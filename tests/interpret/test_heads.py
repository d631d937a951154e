"""Attention head patterns: targets, chance-level scores, and a model with handcrafted heads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard.interpret.head_patterns as module
from regard.errors import InputError
from regard.interpret import heads
from regard.interpret.head_patterns import (
    PATTERNS,
    POINTING,
    PatternSums,
    induction_targets,
    predictive_pairs,
    related_pairs,
    targets,
)
from regard.interpret.heads import HeadCensus, read_text_pairs
from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.text import Encoding, Tokenizer
from regard.verbs.python import drain

NEXT, PREVIOUS, SAME, OTHER, DELIMITER, PREDICTIVE, INDUCTION, BROAD = PATTERNS


def head_census(*arguments: Any, **options: Any) -> HeadCensus:
    result = drain(heads.head_census(*arguments, **options))
    assert isinstance(result, HeadCensus)
    return result


def line(words: str, *, segments: str = "") -> Encoding:
    """Encode letters as ids; `.` is a special token."""
    ids = [ord(letter) for letter in words]
    segment_ids = [int(digit) for digit in segments] or [0] * len(words)
    special = [letter == "." for letter in words]
    return Encoding(ids, list(words), [(0, 0)] * len(words), [None] * len(words), segment_ids, special, 0)


def arrows(found: np.ndarray, pattern: str) -> set[tuple[int, int]]:
    return {(int(row), int(column)) for row, column in np.argwhere(found[POINTING.index(pattern)])}


def test_targets_of_every_pattern() -> None:
    text = line(".abca.ad.", segments="000000111")
    related = frozenset({(ord("b"), ord("d"))})
    bound = frozenset({(ord("b"), ord("c"))})
    found = targets(text, related, bound, causal=False)
    assert arrows(found, NEXT) == {(1, 2), (2, 3), (3, 4), (6, 7)}
    assert arrows(found, PREVIOUS) == {(2, 1), (3, 2), (4, 3), (7, 6)}
    assert arrows(found, SAME) == {(1, 4), (4, 1)}
    assert arrows(found, OTHER) == {(1, 6), (6, 1), (4, 6), (6, 4), (2, 7), (7, 2)}
    assert arrows(found, DELIMITER) == {(row, column) for row in (1, 2, 3, 4, 6, 7) for column in (0, 5, 8)}
    assert arrows(found, PREDICTIVE) == {(2, 3), (3, 2)}


def test_causal_models_have_no_forward_targets() -> None:
    found = targets(line("abcab"), frozenset(), frozenset(), causal=True)
    assert arrows(found, NEXT) == set()
    assert arrows(found, SAME) == {(3, 0), (4, 1)}
    assert not np.triu(found, 1).any()


def test_related_tokens_are_nearest_neighbors() -> None:
    vectors = np.eye(20, dtype=np.float32)
    vectors[3] = 0.8 * vectors[3] + 0.9 * vectors[7]  # close to 7
    assert related_pairs([3, 7, 9], vectors) == {(3, 7)}
    assert related_pairs([3, 9], vectors) == frozenset()


def test_predictive_words_share_texts() -> None:
    lines = [line("sbx"), line("syb"), line("szb"), *(line(words) for words in ("xy", "yz", "xz", "xyz", "zy"))]
    assert predictive_pairs(lines) == {(ord("b"), ord("s"))}
    assert predictive_pairs(lines[:3]) == frozenset()  # in every text: not predictive


@given(st.integers(0, 2**32), st.integers(1, 9), st.booleans())
def test_shuffles_move_targets_and_keep_their_number(seed: int, length: int, causal: bool) -> None:
    generator = np.random.default_rng(seed)
    found = generator.random((2, length, length)) < 0.4
    found = np.tril(found) if causal else found
    moved = module.shuffle_targets(found, 5, generator, causal=causal)
    assert moved.shape == (5, 2, length, length)
    np.testing.assert_array_equal(moved.sum(-1), np.broadcast_to(found.sum(-1), (5, 2, length)))
    assert not causal or not np.triu(moved, 1).any()
    if not causal:  # the same shuffle for all rows
        columns = [sorted(map(tuple, found.reshape(-1, length).T.tolist()))] * 5
        assert [sorted(map(tuple, (one.reshape(-1, length).T > 0).tolist())) for one in moved] == columns


@pytest.mark.parametrize("value", [-1.0, 0.3, 1.0, 2.5, 4.0])
def test_p_values_equal_students_t(value: float) -> None:
    draws = np.random.default_rng(1).normal(0.2, 0.9, 200)
    t = (value - draws.mean()) / (draws.std(ddof=1) * np.sqrt(1 + 1 / 200))
    assert module.p_value(value, draws) == pytest.approx(scipy.stats.t.sf(t, 199), rel=0.01)
    assert module.p_value(1.0, np.ones(5)) == 1.0
    assert module.p_value(2.0, np.ones(5)) == 0.0


def test_holms_correction() -> None:
    assert module.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert module.holm([0.9, 0.6]) == [1.0, 1.0]
    assert module.holm([]) == []


def test_evenness() -> None:
    rows = np.array([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(module.evenness(rows, np.array([4, 4, 4])), [1.0, 0.25, 0.5])
    totals = module.random_evenness(np.array([50, 50]), 2000, np.random.default_rng(0))
    # The mean entropy of a random partition of [0, 1] into n parts is the harmonic sum of 2..n.
    assert np.log(totals.mean() / 2 * 50) == pytest.approx(sum(1 / piece for piece in range(2, 51)), abs=0.02)


@pytest.mark.parametrize("causal", [False, True])
def test_random_attention_has_no_pattern(causal: bool) -> None:
    generator = np.random.default_rng(3)
    sums = PatternSums(30, max_examples=1)
    for number in range(30):
        words = "." + "".join(random.Random(number).choices("abcdefgh", k=9)) + "."
        text = line(words)
        weights = generator.exponential(size=(30, 11, 11)).astype(np.float32)
        weights = np.tril(weights) if causal else weights
        weights /= weights.sum(-1, keepdims=True)
        found = targets(text, frozenset(), frozenset(), causal=causal)
        sums.add(number, text, weights, found, generator, causal=causal)
    measured = [index for index, count in enumerate(sums.tokens) if count]
    plain = [module.p_value(sums.totals[head, p], sums.draws[:, head, p]) for head in range(30) for p in measured]
    assert min(module.holm(plain)) > 0.05
    assert 0.35 < np.mean(plain) < 0.65


# A handcrafted model: a token's vector is one-hot in its name, group, position and segment, so that the queries and
# keys of a head can be any table of these. All vectors have the same sum and length, so that the norms only scale.

WORDS = [f"w{number}" for number in range(18)]
KIN = [("king", "queen"), ("cat", "kitten"), ("red", "scarlet")]
BOUND = [("straw", "berries"), ("salt", "pepper")]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(w for pair in [*KIN, *BOUND] for w in pair)]
V, POSITIONS = len(VOCABULARY), 40
GROUP, POSITION, SEGMENT = V, 2 * V, 2 * V + POSITIONS
D = 2 * V + POSITIONS + 2
HEADS = 5


def tables(pattern: str | None, step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key projections (D, D) of the features."""
    q, k = torch.zeros(D, D), torch.zeros(D, D)
    identity = torch.eye(POSITIONS)
    positions, segments, groups = slice(POSITION, SEGMENT), slice(SEGMENT, D), slice(GROUP, POSITION)
    if pattern in (NEXT, PREVIOUS, None):
        move = {NEXT: 1, PREVIOUS: -1, None: step}[pattern]
        q[positions, positions] = identity
        k[positions, positions] = identity if not move else torch.diag(torch.ones(POSITIONS - abs(move)), move)
    elif pattern in (SAME, OTHER):
        q[groups, groups] = k[groups, groups] = torch.eye(V)
        q[positions, positions], k[positions, positions] = identity, -3 * identity
        q[segments, segments], k[segments, segments] = torch.eye(2), torch.eye(2) * (0.5 if pattern == SAME else -0.5)
    elif pattern == DELIMITER:
        q[0] = 1.0
        k[0, [2, 3]] = 1.0
    elif pattern == PREDICTIVE:
        for one, two in BOUND:
            a, b = VOCABULARY.index(one), VOCABULARY.index(two)
            q[a, a] = q[b, b] = k[a, b] = k[b, a] = 2.0
    return q, k


def handcrafted_bert(layout: list[list[tuple[str | None, int]]]) -> Bert:
    config = BertConfig(
        vocab_size=V,
        hidden_size=D * HEADS,
        num_hidden_layers=len(layout),
        num_attention_heads=HEADS,
        intermediate_size=4,
        max_position_embeddings=POSITIONS,
    )
    model = Bert(config, output_heads=()).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        kin = {VOCABULARY.index(two): VOCABULARY.index(one) for one, two in KIN}
        for token in range(V):
            model.embedding.tokens.weight[token, token] = 0.6
            model.embedding.tokens.weight[token, GROUP + kin.get(token, token)] = 0.8
        model.get_parameter("embedding.positions.weight")[:, POSITION:SEGMENT] = torch.eye(POSITIONS)
        model.get_parameter("embedding.segments.weight")[:, SEGMENT:D] = torch.eye(2)
        for layer, heads in enumerate(layout):
            project = model.get_parameter(f"encoder.layers.{layer}.attention.project.weight")
            for head, (pattern, step) in enumerate(heads):
                for part, table in enumerate(tables(pattern, step)):
                    start = part * D * HEADS + head * D
                    project[start : start + D, :D] = table
    return model


def sentence_pairs(seed: int, count: int) -> list[tuple[str, str | None]]:
    """Sentence pairs with repeated, related and predictive words; predictive words are in different sentences."""
    chosen = random.Random(seed)
    found: list[tuple[str, str | None]] = []
    for _ in range(count):
        first, second = (chosen.sample(WORDS, 8) for _ in range(2))
        kin, bound = chosen.choice(KIN), chosen.choice(BOUND)
        a, b, c, d = chosen.sample(range(8), 4)
        first[a], first[b], second[a] = kin[0], kin[1], kin[0]
        first[c] = second[c] = second[b]
        if chosen.random() < 0.4:
            first[d], second[d] = bound
        found.append((" ".join(first), " ".join(second)))
    return found


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return Tokenizer.open(folder)


LAYOUTS: list[list[list[tuple[str | None, int]]]] = [
    [
        [(NEXT, 0), (OTHER, 0), (None, 0), (BROAD, 0), (PREDICTIVE, 0)],
        [(DELIMITER, 0), (None, 4), (SAME, 0), (PREVIOUS, 0), (NEXT, 0)],
    ],
    [
        [(None, -5), (SAME, 0), (SAME, 0), (DELIMITER, 0), (BROAD, 0)],
        [(PREDICTIVE, 0), (PREVIOUS, 0), (OTHER, 0), (None, 0), (None, 3)],
    ],
]


@pytest.fixture(scope="module", params=[0, 1])
def census(
    request: pytest.FixtureRequest, tokenizer: Tokenizer
) -> tuple[list[list[tuple[str | None, int]]], HeadCensus]:
    layout = LAYOUTS[request.param]
    return layout, head_census(
        handcrafted_bert(layout), tokenizer, sentence_pairs(request.param, 45), name="handcrafted"
    )


def test_handcrafted_patterns_are_recovered(census: tuple[list[list[tuple[str | None, int]]], HeadCensus]) -> None:
    layout, found = census
    assert [head.pattern for head in found.heads] == [pattern for layer in layout for pattern, _ in layer]
    assert [(head.layer, head.head) for head in found.heads] == [(layer, head) for layer in (1, 2) for head in range(5)]
    for head in found.heads:
        named = next(finding for finding in head.findings if finding.pattern == head.nearest)
        assert named.tokens > 0
        assert head.pattern is None or (named.score is not None and named.score > 0.95)
        assert head.pattern is None or (named.corrected is not None and named.corrected < 1e-6)


def test_examples_show_the_pattern(census: tuple[list[list[tuple[str | None, int]]], HeadCensus]) -> None:
    _, found = census
    for head in found.heads:
        for example in head.examples:
            tokens = found.texts[example.text]
            assert len(example.weights) == len(tokens)
            assert sum(example.weights) == pytest.approx(1, abs=0.01)
            word, seen = tokens[example.row], tokens[example.column]
            if head.pattern == NEXT:
                assert example.column == example.row + 1
            if head.pattern == PREDICTIVE:
                assert (word, seen) in BOUND or (seen, word) in BOUND
            if head.pattern == DELIMITER:
                assert seen in ("[CLS]", "[SEP]")
    assert max(len(head.examples) for head in found.heads) == 5


def test_json_document_and_counts(census: tuple[list[list[tuple[str | None, int]]], HeadCensus]) -> None:
    layout, found = census
    document = found.to_dict()
    expected_patterns = [pattern for layer in layout for pattern, _ in layer]
    assert document["counts"] == {name: expected_patterns.count(name) for name in PATTERNS}
    assert document["correction"] == "Holm"
    assert found.page_data()["view"] == "heads"


def test_gpt_reads_texts_one_by_one(tokenizer: Tokenizer) -> None:
    model = Gpt(
        GptConfig(
            vocab_size=V,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
        )
    ).eval()
    found = head_census(model, tokenizer, sentence_pairs(0, 6))
    assert (found.read, len(found.heads)) == (12, 8)
    ahead = found.heads[0].findings[PATTERNS.index(NEXT)]
    assert (ahead.tokens, ahead.score, ahead.corrected) == (0, None, None)


def induction_finding(found: HeadCensus, index: int) -> Any:
    return found.heads[index].finding(INDUCTION)


def test_induction_targets_follow_the_previous_occurrence() -> None:
    found = induction_targets(np.array([9, 4, 5, 6, 4, 5, 6]))
    assert arrows(found, INDUCTION) == {(4, 2), (5, 3), (6, 4)}
    assert found.sum() == 3


def test_induction_of_uniform_causal_attention() -> None:
    sums = PatternSums(1, max_examples=1)
    generator = np.random.default_rng(0)
    for number in range(4):
        ids = np.concatenate([[1], *[generator.permutation(20) + 5] * 2])
        weights = np.tril(np.ones((1, 41, 41), dtype=np.float32)) / np.arange(1, 42, dtype=np.float32)[:, None]
        sums.add_pointing(number, weights, induction_targets(ids), generator, causal=True)
    expected = np.mean([1 / (row + 1) for row in range(21, 41)])
    score = sums.totals[0, PATTERNS.index(INDUCTION)] / sums.tokens[PATTERNS.index(INDUCTION)]
    assert score == pytest.approx(expected, rel=1e-5) and score < 0.04
    assert sums.interval(0, PATTERNS.index(INDUCTION)) == pytest.approx((expected, expected), abs=1e-4)
    assert sums.tokens.sum() == 80  # nothing is counted for other patterns


def test_intervals_are_those_of_a_mean_over_texts() -> None:
    generator = np.random.default_rng(2)
    ids = np.array([4, 5, 6, 4, 5, 6])
    weights = np.tril(generator.exponential(size=(9, 1, 6, 6))).astype(np.float32)
    weights /= weights.sum(-1, keepdims=True)
    sums = PatternSums(1, max_examples=1)
    for number, one in enumerate(weights):
        sums.add_pointing(number, one, induction_targets(ids), generator, causal=True)
    values = np.array([one[0, [3, 4, 5], [1, 2, 3]].mean() for one in weights])
    expected = scipy.stats.t.interval(0.95, 8, values.mean(), values.std(ddof=1) / 3)
    assert sums.interval(0, PATTERNS.index(INDUCTION)) == pytest.approx(expected, abs=1e-3)
    for degrees in (2, 3, 9, 99):
        assert module.t_quantile(degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), rel=0.01)


def handcrafted_induction_gpt(vocabulary: int, positions: int) -> Gpt:
    """Two layers: a head that copies the previous token, and one that looks for it: an induction head.

    Features are one-hot: the token, its position, the previous token, and a constant that makes the norm's mean 0 and
    its scale nearly the same everywhere.
    """
    width = 2 * (2 * vocabulary + positions)
    half = width // 2  # the second half is the negative of the first, so that every vector has mean 0
    config = GptConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=4,
        max_position_embeddings=positions,
    )
    model = Gpt(config).eval()
    tokens, place, before = slice(0, vocabulary), slice(vocabulary, vocabulary + positions), vocabulary + positions
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        model.embedding.tokens.weight[:, tokens] = torch.eye(vocabulary)
        model.get_parameter("embedding.positions.weight")[:, place] = torch.eye(positions)
        for name in ("embedding.tokens.weight", "embedding.positions.weight"):
            table = model.get_parameter(name)
            table[:, half:] = -table[:, :half]
        first, second = (layer.attention for layer in model.decoder.layers)
        # Layer 1, head 0: the query of position i is the key of position i - 1; the value is the token.
        query, key, value = first.project.weight.split(width)
        query[:positions, place] = 20 * torch.eye(positions)
        key[:positions, place] = 20 * torch.diag(torch.ones(positions - 1), -1)
        value[:vocabulary, tokens] = torch.eye(vocabulary)
        first.output.weight[before:half, :vocabulary] = torch.eye(vocabulary)
        first.output.weight[half + before :, :vocabulary] = -torch.eye(vocabulary)
        # Layer 2, head 0: the query is the token, the key the previous token.
        query, key, value = second.project.weight.split(width)
        query[:vocabulary, tokens] = 20 * torch.eye(vocabulary)
        key[:vocabulary, before:half] = 20 * torch.eye(vocabulary)
    return model


def test_a_handcrafted_induction_head_is_found(tokenizer: Tokenizer) -> None:
    found = head_census(handcrafted_induction_gpt(V, 60), tokenizer, sentence_pairs(0, 4))
    assert [head.pattern for head in found.heads[:3]] == [PREVIOUS, BROAD, INDUCTION]
    copied, even, induced = (induction_finding(found, index) for index in (0, 1, 2))
    assert induced.score > 0.95 and induced.interval[0] > 0.9 and induced.corrected < 1e-6
    assert copied.score < 0.05 and even.score == pytest.approx(
        np.mean([1 / (row + 1) for row in range(25, 50)]), rel=1e-4
    )
    assert induced.tokens == 10 * 25
    example = found.heads[2].examples[0]
    tokens = found.texts[example.text]
    assert tokens[example.column - 1] == tokens[example.row] and example.text >= found.read
    assert "highest induction scores" in found.to_text()


def test_only_causal_models_have_induction_scores(census: tuple[Any, HeadCensus]) -> None:
    _, found = census
    assert all(head.finding(INDUCTION).score is None for head in found.heads)
    assert "induction scores" not in found.to_text()


def test_the_same_seed_gives_the_same_census(tokenizer: Tokenizer) -> None:
    model = handcrafted_bert(LAYOUTS[0])
    first, second = (head_census(model, tokenizer, sentence_pairs(0, 5), seed=7).to_dict() for _ in range(2))
    assert first == second


def test_lines_become_pairs() -> None:
    expected = [("a", "b"), ("c", "d"), ("e", "f"), ("g", None)]
    assert read_text_pairs(["a", "b", "", "c\td", "e", "f", "g"])[0] == expected
    assert read_text_pairs(["a", "b", "c"], limit=1)[0] == [("a", "b")]
    assert read_text_pairs(["a\t", "\tb"])[0] == [("a", "b")]
    with pytest.raises(InputError, match="no text"):
        read_text_pairs(["", "  "])


def test_omitted_lines_are_counted() -> None:
    lines = [f"line {number}" for number in range(600)]
    assert (len(read_text_pairs(lines)[0]), read_text_pairs(lines)[1]) == (100, 400)
    assert read_text_pairs(lines[:200])[1] == 0
    assert read_text_pairs(["a", "b", "", "c", " ", "d\te"], limit=1)[1] == 2
    assert read_text_pairs(["a", "b\tc", ""], limit=1)[1] == 1  # "a" has no second text


def test_omitted_lines_and_truncation_are_reported(tokenizer: Tokenizer) -> None:
    model = handcrafted_bert([[(NEXT, 0)]])
    word = sentence_pairs(0, 1)[0][0].split()[0]
    whole = head_census(model, tokenizer, read_text_pairs([word, word])[0])
    assert (whole.left_out, whole.truncated, whole.to_dict()["notes"]) == (0, 0, [])
    longest = min(128, model.config.max_position_embeddings)
    pairs, left_out = read_text_pairs([f"{word} " * longest, word, word, word, word], limit=2)
    found = head_census(model, tokenizer, pairs, left_out=left_out)
    assert (found.left_out, found.truncated) == (1, 1)
    notes = [
        "left out: 1 line; regard heads --limit N reads more pairs",
        f"1 of 2 texts were truncated to {longest} tokens",
    ]
    assert found.to_dict()["notes"] == notes


def test_unsupported_models_are_rejected(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a BERT or a GPT"):
        head_census(torch.nn.Linear(2, 2), tokenizer, [("a", None)])
