"""The worked examples of the chapters on self-attention and the Transformer: what the built-in models must show."""

from __future__ import annotations

import pytest

from regard.lessons.course.chapters import self_attention_answers as attention_answers
from regard.lessons.course.chapters import self_attention_examples as attention
from regard.lessons.course.chapters import transformer_answers
from regard.lessons.course.chapters import transformer_examples as transformer
from regard.render.story import FigureRow, HeatMap, NumberMatrix, Section, StoryBlock, StoryTable
from regard.verbs.python import LocalModels


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels("cpu")


def tables(blocks: list[StoryBlock]) -> list[StoryTable]:
    found = []
    for block in blocks:
        if isinstance(block, StoryTable):
            found.append(block)
        elif isinstance(block, Section):
            found += tables(block.blocks)
    return found


def ours(blocks: list[StoryBlock]) -> dict[str, str]:
    """Quantity -> our number, of all tables beside the deck's."""
    rows = [row for table in tables(blocks) if table.headers[0] == "quantity" for row in table.rows]
    return {row[0]: row[2] for row in rows}


def test_the_five_steps_are_those_of_the_model(models: LocalModels) -> None:
    blocks = attention.five_steps(models)
    assert [block.heading[0] for block in blocks if isinstance(block, Section)] == list("12345")
    fourth = blocks[3]
    assert isinstance(fourth, Section)
    maps, averages = (block for block in fourth.blocks if isinstance(block, FigureRow))
    assert len(maps.blocks) == len(averages.blocks) == 6
    for one in maps.blocks:
        assert isinstance(one, HeatMap) and [sum(row) for row in one.weights] == pytest.approx([1] * 4, abs=1e-5)
    assert all(isinstance(one, NumberMatrix) and one.title.startswith("Z of head") for one in averages.blocks)
    differences = [float(row[1]) for row in tables(blocks)[-1].rows]
    assert differences[0] == differences[2] == 0 and differences[1] < 1e-5


def test_the_car_is_blue_adds_up(models: LocalModels) -> None:
    steps, values, _ = tables(attention.car_is_blue(models))
    assert sum(float(row[-1]) for row in steps.rows) == pytest.approx(1, abs=1e-3)
    for row in steps.rows:
        assert float(row[2]) / 8 == pytest.approx(float(row[3]), abs=1e-2)
    *words, total = values.rows
    for column in (5, 6, 7):
        assert sum(float(row[column]) for row in words) == pytest.approx(float(total[column]), abs=5e-3)
    numbers = ours(attention.car_is_blue(models))
    assert float(numbers["a weight that suppresses a word"]) < attention.TINY
    assert float(numbers["z against the model's own"]) < 1e-5


def test_order_matters_only_with_positions(models: LocalModels) -> None:
    (table,) = tables(attention.order(models))
    assert all(float(row[1]) < 1e-4 and float(row[3]) > 0.1 for row in table.rows)


def test_heads_that_resolve_it(models: LocalModels) -> None:
    decoder, encoder = attention.COREFERENCE
    layer, head, weight = attention.strongest_head(models, decoder, "animal")
    assert (layer, head) == (5, 3) and weight > 0.6
    assert attention.strongest_head(models, decoder, "tired")[2] == 0  # the decoder has not read it yet
    animal, tired = (attention.strongest_head(models, encoder, word) for word in ("animal", "tired"))
    assert animal[:2] != tired[:2] and animal[2] > 0.3 and tired[2] > 0.5
    (table,) = tables(attention.all_heads(models))
    assert sum(int(row[1]) for row in table.rows) == 48


def test_the_mask_shares_out_the_weight_of_later_words(models: LocalModels) -> None:
    _, _, plain, masked, difference = attention.masked_weights(models)
    assert difference < 1e-5 and not masked.triu(1).any() and (plain.triu(1) > 0).any()
    earlier = plain.tril()
    assert (earlier / earlier.sum(-1, keepdim=True) - masked).abs().max() < 1e-5


def test_three_kinds_of_attention(models: LocalModels) -> None:
    (table,) = tables(attention.beside_encoder_decoder(models))
    sizes = [row[3].split(" x ") for row in table.rows]
    assert sizes[0][0] == sizes[0][1] == sizes[2][1] and sizes[1][0] == sizes[1][1] == sizes[2][0]
    size = int(sizes[1][0])
    assert [row[4].split(" of ")[0] for row in table.rows] == ["0", str(size * (size - 1) // 2), "0"]


def test_positional_encodings_meet_the_criteria(models: LocalModels) -> None:
    criteria, _ = tables(transformer.five_criteria(models))
    measured = dict(criteria.rows)
    assert float(measured["unique for each position"].rsplit(" ", 1)[1]) > 1
    assert float(measured["consistent distances"].rsplit(" ", 1)[1]) < 1e-5
    assert measured["bounded"].startswith("all values lie between -1.000 and 1.000") and measured[
        "deterministic"
    ].endswith("yes")
    assert ours(transformer.five_criteria(models))["layout"] == "0.0e+00"


def test_layer_norm_and_feed_forward(models: LocalModels) -> None:
    norm = ours(transformer.layer_norm(models))
    assert norm["mean after normalizing"] == "0.0000" and norm["standard deviation"] == "1.0000"
    assert float(norm["result against the model's own"]) < 1e-5 and float(norm["training against test"]) == 0
    network = ours(transformer.feed_forward(models))
    assert float(network["each position alone"]) < 1e-3 and float(network["first position replaced by 0"]) < 1e-3


def test_every_decoder_layer_reads_the_top_of_the_encoder(models: LocalModels) -> None:
    (table,) = tables(transformer.top_of_the_encoder(models))
    assert [float(row[1]) for row in table.rows] == [0.0] * len(table.rows)
    assert len({row[2] for row in table.rows}) == len(table.rows)  # with its own keys


def test_the_decoding_loop_ends_with_the_end_of_the_sentence(models: LocalModels) -> None:
    (table,) = tables(transformer.decoding_loop(models))
    assert [row[3] for row in table.rows[:4]] == [row[2] for row in table.rows[:4]] == ["I", "am", "a", "student"]
    assert table.rows[-1][3] == "<end of sentence>"
    (best,) = tables(transformer.final_layer(models))
    assert best.rows[0][0] == "I"


def test_sizes_of_the_paper(models: LocalModels) -> None:
    (table,) = tables(transformer.sizes(models))
    deck = {row[0]: row[1] for row in table.rows}
    assert [deck[name] for name in ("width of the embeddings", "heads")] == ["512", "8"]
    assert ours([table])["BERT's feed-forward network"] == "3072 or 4096"


def test_answers_of_the_exercises(models: LocalModels) -> None:
    """Each answer is computed; these are the ones that the text of the chapters relies on."""
    expected = {
        attention_answers.answer_scale: 1,
        attention_answers.answer_concatenation: 1,
        attention_answers.answer_order: 0,
        attention_answers.answer_animal: 2,
        attention_answers.answer_all_heads: 0,
        attention_answers.answer_first_row: 2,
        attention_answers.answer_last_row: 2,
        attention_answers.answer_cross_shape: 1,
        transformer_answers.answer_position_zero: 2,
        transformer_answers.answer_shift: 0,
        transformer_answers.answer_norm: 0,
        transformer_answers.answer_feed_forward: 0,
        transformer_answers.answer_memory: 2,
        transformer_answers.answer_first_input: 1,
        transformer_answers.answer_initial_loss: 1,
    }
    assert {answer.__name__: answer(models).choice for answer in expected} == {
        answer.__name__: choice for answer, choice in expected.items()
    }
