"""Tokens, ids, offsets and segments of texts, with BERT's own vocabulary, and the embeddings that are added up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import InputError
from regard.interpret.tokenization import input_embeddings, open_vocabulary, tokenize_texts
from regard.models import Bert, BertConfig
from regard.nn.masks import Padded
from regard.text import Tokenizer

# The first ids of the five rows of SST-2 that the deck prints; the last one of a row may be cut off there.
DECK_IDS = (
    "101, 1037, 18385, 1010, 6057, 1998, 2633, 182",
    "101, 4593, 2128, 27241, 23931, 2013, 1996, 62",
    "101, 2027, 3653, 23545, 2037, 4378, 24185, 10",
    "101, 2023, 2003, 1037, 17453, 14726, 19379, 1",
    "101, 5655, 6262, 1005, 1055, 12075, 2571, 376",
)


def test_the_ids_are_those_of_the_deck(shared_data: Callable[[str], Path]) -> None:
    rows, vocab = shared_data("sst2/train.tsv"), shared_data("vocab-bert-base-uncased/vocab.txt")
    result = regard.tokenize(rows, vocab=vocab, limit=2000)
    for text, printed in zip(result.texts[:5], DECK_IDS, strict=True):
        assert ", ".join(map(str, text.ids)).startswith(printed)
    assert (result.num_texts, result.longest, result.vocab_size) == (2000, 59, 30522)
    words = tokenize_texts(open_vocabulary(vocab), ["a visually stunning rumination on love"], source="BERT")
    tokens = ["[CLS]", "a", "visually", "stunning", "rum", "##ination", "on", "love", "[SEP]"]
    assert [token.token for token in words.texts[0].tokens] == tokens
    assert words.texts[0].ids == [101, 1037, 17453, 14726, 19379, 12758, 2006, 2293, 102]


def test_offsets_and_segments_of_a_pair(tiny_bert_folder: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    result = tokenize_texts(tokenizer, ["The  Film"], "É good\tday", source="tiny")
    [text] = result.texts
    assert [token.segment for token in text.tokens] == sorted(token.segment for token in text.tokens)
    parts = [text.characters(token) for token in text.tokens if not token.special]
    assert "".join(parts) == "TheFilmÉgoodday"
    assert [token.special for token in text.tokens].count(True) == 3
    assert text.tokens[0].start is None and text.tokens[0].token == "[CLS]"
    headers, rows = result.to_table()
    assert len(rows) == len(text.tokens) and rows[1][headers.index("start")] == 0
    plain = tokenize_texts(tokenizer, ["the film"], source="tiny", add_special_tokens=False)
    assert [token.token for token in plain.texts[0].tokens] == ["the", "film"]


def test_the_embeddings_add_up(tiny_bert_folder: Path) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    encoding = tokenizer.encode("the film", "was good")
    token, segment, position, total, output = input_embeddings(model, encoding.ids, encoding.segments)
    assert [token.name, segment.name, position.name] == ["token", "segment", "position"]
    parts = torch.tensor([token.values, segment.values, position.values])
    torch.testing.assert_close(parts.sum(0), torch.tensor(total.values))
    kinds = torch.tensor([encoding.segments])
    expected = model.embedding(torch.tensor([encoding.ids]), Padded(), kinds)[0]
    torch.testing.assert_close(torch.tensor(output.values), expected[:, : len(output.values[0])])
    torch.testing.assert_close(torch.tensor(output.norms), expected.norm(dim=-1))
    assert segment.values[0] != segment.values[-1] and token.values[3] == token.values[-1]  # both are [SEP]
    assert input_embeddings(model, [1] * 99, [0] * 99, max_length=32) == []
    assert input_embeddings(torch.nn.Linear(2, 2), [1], [0]) == []


def test_an_embedding_without_segments_or_positions() -> None:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    model = Bert(config, output_heads=()).eval()
    model.embedding.segments = model.embedding.norm = None
    rows = input_embeddings(model, [1, 2, 3], [0, 0, 0])
    assert [row.name for row in rows] == ["token", "position", "sum"]


def test_what_cannot_be_tokenized(tiny_bert_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    with pytest.raises(InputError, match="no text"):
        tokenize_texts(tokenizer, [], source="tiny")
    with pytest.raises(InputError, match="no such file"):
        open_vocabulary(tmp_path / "vocab.txt")
    (tmp_path / "words.txt").write_text("the\nfilm\n")
    with pytest.raises(InputError, match="unk_token"):
        open_vocabulary(tmp_path / "words.txt")
    with pytest.raises(InputError, match="--vocab is a vocabulary only"):
        regard.tokenize("the film", vocab=tiny_bert_folder, embeddings=True)
    assert regard.tokenize("the film", vocab=tiny_bert_folder).texts[0].ids == tokenizer.encode("the film").ids
    long = regard.tokenize("film " * 600, model=str(tiny_bert_folder), embeddings=True)
    assert long.texts[0].embeddings == [] and "more tokens than" in long.notes[0]
