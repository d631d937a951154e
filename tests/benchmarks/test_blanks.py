"""The fill-in-the-blank benchmark: its data file, its ranks and its output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from benchmarks.blanks import BLANKS, Blank, main, predict_blanks, read_blanks
from regard.errors import InputError
from regard.models import Bert, BertConfig
from regard.text import Tokenizer


@pytest.fixture(scope="module")
def tiny(tiny_bert_folder: Path) -> tuple[Bert, Tokenizer]:
    model, tokenizer = regard.load(tiny_bert_folder)
    assert isinstance(model, Bert) and tokenizer is not None
    return model, tokenizer


def ranked(model: Bert, tokenizer: Tokenizer, sentence: str) -> list[str]:
    """The vocabulary, most likely token first, for the only [MASK] of a sentence in a batch of its own."""
    ids = tokenizer.encode(sentence.replace("_", "[MASK]")).ids
    assert model.mlm_head is not None and tokenizer.mask_token_id is not None
    logits = model.mlm_head(model(torch.tensor([ids])))[0, ids.index(tokenizer.mask_token_id)]
    return [tokenizer.token(index) for index in logits.argsort(descending=True).tolist()]


def test_there_are_thirty_blanks_with_a_few_accepted_words_each() -> None:
    blanks = read_blanks(BLANKS)
    assert len({blank.sentence for blank in blanks}) == len(blanks) == 30
    for blank in blanks:
        assert 2 <= len(set(blank.accepted)) == len(blank.accepted) <= 8, blank
        assert all(word.isalpha() and word.islower() for word in blank.accepted), blank


def test_every_accepted_word_is_one_token_of_bert(shared_data: Callable[[str], Path]) -> None:
    vocabulary = shared_data("vocab-bert-base-uncased/vocab.txt").read_text(encoding="utf-8").splitlines()
    wanted = {word for blank in read_blanks(BLANKS) for word in blank.accepted}
    assert wanted <= set(vocabulary)


def test_top_tokens_are_the_most_likely_of_each_sentence(tiny: tuple[Bert, Tokenizer]) -> None:
    sentences = ["the film was _ .", "_ people", "there is a day and a _ of water in the film"]
    found = predict_blanks(*tiny, [Blank(sentence, ["good"]) for sentence in sentences])
    assert [prediction.top for prediction in found] == [ranked(*tiny, sentence)[:10] for sentence in sentences]


def test_the_rank_is_that_of_the_first_accepted_word(tiny: tuple[Bert, Tokenizer]) -> None:
    sentence = "the film was _ ."
    order = ranked(*tiny, sentence)
    wanted = [[order[0]], [order[6], order[3]], [order[9]], [order[10]], [order[50], "nowhere"]]
    found = predict_blanks(*tiny, [Blank(sentence, words) for words in wanted])
    assert [prediction.rank for prediction in found] == [1, 4, 10, None, None]


def test_a_model_without_the_head_is_rejected(tiny: tuple[Bert, Tokenizer]) -> None:
    config = BertConfig(
        vocab_size=tiny[1].size, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    with pytest.raises(InputError, match="lacks a masked-LM head"):
        predict_blanks(Bert(config, output_heads=["pooler"]), tiny[1], [Blank("a _ day", ["good"])])


@pytest.mark.parametrize("line", ["no blank\tgood", "_ and _\tgood", "a _ day", "a _ day\tgood,,bad"])
def test_invalid_lines_are_rejected(line: str, tmp_path: Path) -> None:
    path = tmp_path / "blanks.tsv"
    path.write_text(f"a _ day\tgood,bad\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: expected a sentence with one _"):
        read_blanks(path)


def test_prints_a_table_or_json(tiny_bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tiny_bert_folder), "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert figures["count"] == 30 and figures["score"] == sum(row["rank"] is not None for row in figures["blanks"])
    main([str(tiny_bert_folder)])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 31 and table[-1].startswith(f"{figures['score']} of 30")
    first = figures["blanks"][0]
    assert table[0].split()[0] == str(first["rank"] or "-") and table[0].endswith(" ".join(first["top"]))
