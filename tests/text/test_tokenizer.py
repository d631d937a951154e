"""The tokenizer equals transformers for the same files; names, decoding, threads and forks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models

from regard.errors import InputError
from regard.text import Encoding, Tokenizer


def test_ids_of_the_lecture(shared_data: Callable[[str], Path], sentences: list[str]) -> None:
    tokenizer = Tokenizer.open(shared_data("vocab-bert-base-uncased"))
    shown = [
        ([101, 1037, 18385, 1010, 6057, 1998, 2633], "182"),
        ([101, 4593, 2128, 27241, 23931], ""),
        ([101, 2027, 3653, 23545, 2037, 4378, 24185], "10"),
        ([101, 2023, 2003, 1037, 17453, 14726, 19379], "1"),
        ([101, 5655, 6262, 1005, 1055, 12075, 2571], "376"),
    ]
    for sentence, (start, next_digits) in zip(sentences, shown, strict=False):
        ids = tokenizer.encode(sentence).ids
        assert ids[: len(start)] == start
        assert str(ids[len(start)]).startswith(next_digits)


def test_equals_transformers_on_real_and_edge_case_texts(
    both: Any, edge_case_texts: list[str], sentences: list[str]
) -> None:
    texts = edge_case_texts + sentences
    encodings = both.ours.encode_batch(texts)
    for text, encoding in zip(texts, encodings, strict=True):
        assert both.agree(encoding, text), text
        assert encoding.num_truncated == 0
    assert both.ours.ids_batch(texts) == ([encoding.ids for encoding in encodings], [0] * len(texts))
    bare = both.ours.encode_batch(texts[:30], add_special_tokens=False)
    assert [one.ids for one in bare] == [
        both.theirs(text, add_special_tokens=False)["input_ids"] for text in texts[:30]
    ]


def test_pairs_and_truncation_equal_transformers(both: Any, edge_case_texts: list[str]) -> None:
    pairs = [(first, second) for first in edge_case_texts for second in edge_case_texts[2:8]]
    for length in (4, 5, 8, 13, None):
        cut = {"truncation": "longest_first", "max_length": length} if length else {}
        encodings = both.ours.encode_batch(pairs, max_length=length)
        ids, cuts = both.ours.ids_batch(pairs, max_length=length)
        for pair, encoding in zip(pairs, encodings, strict=True):
            assert both.agree(encoding, *pair, **cut), (pair, length)
            assert encoding == both.ours.encode(*pair, max_length=length)
            assert len(encoding) + encoding.num_truncated == len(both.ours.encode(*pair))
        assert (ids, cuts) == ([one.ids for one in encodings], [one.num_truncated for one in encodings])


def test_lone_surrogates_keep_their_position(small: Tokenizer) -> None:
    encoding = small.encode("\udc80hello \ud83d worlds", "\udfffcafé")
    assert encoding.tokens == ["[CLS]", "hello", "world", "##s", "[SEP]", "caf", "##e", "[SEP]"]
    assert encoding.offsets[1:4] == [(1, 6), (9, 14), (14, 15)]
    assert encoding.offsets[5:7] == [(1, 4), (4, 5)]
    assert encoding.words == [None, 0, 1, 1, None, 0, 0, None]
    assert encoding.segments == [0, 0, 0, 0, 0, 1, 1, 1]


def test_blank_text_has_only_special_tokens(bert: Any, gpt2: Any) -> None:
    assert bert.ours.encode(" \n").ids == [101, 102]
    assert bert.ours.encode("", add_special_tokens=False).ids == []
    assert gpt2.ours.encode("").ids == []


def test_special_tokens_in_the_text_are_not_marked_special(small: Tokenizer) -> None:
    encoding = small.encode("hello [SEP]")
    assert encoding.ids == [2, 5, 3, 3]
    assert encoding.special_tokens_mask == [True, False, False, True]


@pytest.mark.parametrize("texts", ["hello", [b"hello"], ["hello", None], [("a", "b", "c")], [("a", 1)]])
def test_input_that_is_not_text_is_rejected(small: Tokenizer, texts: Any) -> None:
    with pytest.raises(InputError, match="expected a"):
        small.encode_batch(texts)


@pytest.mark.parametrize("length", [-1, 0, 1])
def test_too_small_length_is_rejected(small: Tokenizer, length: int) -> None:
    with pytest.raises(InputError, match="max_length"):
        small.encode("hello", max_length=length)
    assert small.encode("hello", max_length=2).ids == [2, 3]


def test_names_and_ids(bert: Any, gpt2: Any, roberta: Any) -> None:
    tokenizer = bert.ours
    assert (
        tokenizer.pad_token_id,
        tokenizer.unk_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
    ) == (0, 100, 101, 102, 103)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (None, None)
    assert (tokenizer.token(7592), tokenizer.id("hello"), tokenizer.size) == ("hello", 7592, 30522)
    assert list(tokenizer.vocabulary.items())[100:102] == [("[UNK]", 100), ("[CLS]", 101)]
    ids = [getattr(gpt2.ours, f"{role}_token_id") for role in ("bos", "eos", "unk", "pad")]
    assert ids == [50256, 50256, 50256, None]
    ids = [getattr(roberta.ours, f"{role}_token_id") for role in ("cls", "pad", "sep", "unk", "mask")]
    assert ids == [0, 1, 2, 3, 50260]
    with pytest.raises(InputError, match=r"'helllo' is not a token .* did you mean 'hello'"):
        tokenizer.id("helllo")
    for number in (-1, 30522, 2**40):
        with pytest.raises(InputError, match="ids run from 0 to 30521"):
            tokenizer.token(number)


def test_decode(bert: Any, gpt2: Any) -> None:
    ids = bert.ours.encode("Hello, world!").ids
    assert bert.ours.decode(ids) == "hello, world!"
    assert bert.ours.decode(ids, skip_special_tokens=False) == "[CLS] hello, world! [SEP]"
    assert gpt2.ours.decode([*gpt2.ours.encode(" Héllo 👩🏽").ids, 60000]) == " Héllo 👩🏽"
    with pytest.raises(InputError, match="whole number"):
        bert.ours.decode([101, -100])


def test_clip_reads_lower_case_and_ends_words(clip: Any, tmp_path: Path) -> None:
    tokenizer = clip.ours
    found = tokenizer.encode("A  Charming\tFILM!")
    assert found.tokens[0] == "<|startoftext|>" and found.tokens[-1] == "<|endoftext|>"
    assert found.ids == tokenizer.encode("a charming film!").ids
    for text in ("a charming film !", "naïve café 日本 👩🏽"):
        for special in (True, False):
            ids = tokenizer.encode(text, add_special_tokens=special).ids
            assert tokenizer.decode(ids) == clip.theirs.decode(ids, skip_special_tokens=True)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == tokenizer.bos_token_id + 1
    clip.theirs.save_pretrained(tmp_path)  # tokenizer.json
    again = Tokenizer.open(tmp_path)
    for text in ("A  Charming\tFILM!", "it's naïve, 日本 2 <|endoftext|> x"):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text).ids) == tokenizer.decode(tokenizer.encode(text).ids)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match=r"vocab.json lacks '<\|startoftext"):
        Tokenizer.open(tmp_path)


def test_threads_share_a_tokenizer(bert: Any, sentences: list[str]) -> None:
    lengths = [4, 7, 12, None] * 2
    expected = [bert.ours.encode_batch(sentences[:100], max_length=length) for length in lengths]
    found: list[list[list[Encoding]]] = [[] for _ in lengths]
    start = threading.Barrier(len(lengths))

    def work(index: int) -> None:
        start.wait()
        for _ in range(3):
            found[index].append(bert.ours.encode_batch(sentences[:100], max_length=lengths[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(lengths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[one] * 3 for one in expected]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_encodes_without_a_warning(small: Tokenizer, tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from regard.text import Tokenizer
tokenizer = Tokenizer.open(Path(sys.argv[1]))
texts = ["hello worlds"] * 2000
tokenizer.encode_batch(texts)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_batch(texts)[-1].ids == [2, 5, 6, 7, 3] else 1)
assert "torch" not in sys.modules
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_tokenizer_can_be_pickled(small: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(small))
    assert copy.encode("hello worlds") == small.encode("hello worlds")
    assert (copy.mask_token_id, copy.bos_token_id, copy.vocabulary) == (4, None, small.vocabulary)
    assert repr(copy) == "Tokenizer(WordPiece, size=10, max_length=None)"


def test_a_failure_of_the_library_is_an_input_error() -> None:
    broken = tokenizers.Tokenizer(models.WordPiece({"hello": 0}, unk_token="[UNK]"))
    with pytest.raises(InputError, match=r"the tokenizer failed on a text: .*UNK"):
        Tokenizer(broken, special_tokens={}).encode("world")


def test_a_tokenizer_from_a_pipeline(unigram: tokenizers.Tokenizer) -> None:
    unigram.enable_truncation(1)
    tokenizer = Tokenizer(unigram, special_tokens={"eos_token": "</s>"}, max_length=9)
    assert tokenizer.encode("hello world").ids == [4, 5, 6, 1]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.max_length) == (1, None, 9)
    with pytest.raises(InputError, match="unknown special token 'end'"):
        Tokenizer(unigram, special_tokens={"end": "</s>"})
    with pytest.raises(InputError, match="not a token"):
        Tokenizer(unigram, special_tokens={"eos_token": "<end>"})
