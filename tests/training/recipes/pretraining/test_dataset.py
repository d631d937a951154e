"""From text to a dataset; finished parts are reused if they come from the same text and settings."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data.corpus import Corpus
from regard.errors import InputError
from regard.events import Note, Progress, drain
from regard.text import Tokenizer
from regard.training.recipes.pretraining import corpus as module
from regard.training.recipes.pretraining import objectives
from regard.training.recipes.pretraining.corpus import open_dataset, prepare
from regard.training.recipes.pretraining.objectives import PretrainingDataset
from tests.training.recipes.pretraining.runs import config, story


def build_dataset(
    sources: list[Path], output: Path, *, held_out: list[Path] | None = None, family: Any = "bert", **changed: object
) -> tuple[PretrainingDataset, list[str]]:
    """The dataset, and the notes of its preparation."""
    chosen, names = config(family, **changed), [str(source) for source in sources]
    events = prepare(chosen, names, output, held_out=[str(path) for path in held_out or []])
    notes = [event.message for event in events if isinstance(event, Note)]
    return open_dataset(chosen, names, output, held_out=bool(held_out)), notes


def test_from_text_to_dataset(source: Path, tmp_path: Path) -> None:
    dataset, notes = build_dataset([source], tmp_path)
    assert "wordpiece vocabulary" in notes[0] and "120 entries" in notes[0]
    assert notes[1].startswith("corpus: 120 documents, ")
    assert dataset.tokenizer.size == 120 and dataset.tokenizer.max_length == 32
    corpus = Corpus.open(tmp_path / "corpus")
    assert dataset.text.tokens + dataset.held_out.tokens == corpus.tokens
    assert 0 < dataset.held_out.tokens < 0.03 * corpus.tokens


@pytest.mark.parametrize("family", ["bert", "gpt", "t5"])
def test_the_default_vocabulary_shrinks_to_the_text(source: Path, tmp_path: Path, family: str) -> None:
    dataset, notes = build_dataset([source], tmp_path / "default", family=family, vocabulary_vocab_size=0)
    size = dataset.tokenizer.size
    assert size < 1000 and f"{size:,} entries" in notes[1] and "no more" in notes[1]
    with pytest.raises(InputError, match=f"--set vocabulary.vocab_size={size}$"):
        given = {"vocabulary_vocab_size": 16384, "vocabulary_exact": "true"}
        build_dataset([source], tmp_path / "given", family=family, **given)


def test_evaluation_text(source: Path, unseen: Path, tmp_path: Path) -> None:
    dataset, _ = build_dataset([source], tmp_path, held_out=[unseen])
    assert dataset.text.tokens == Corpus.open(tmp_path / "corpus").tokens
    assert dataset.held_out.tokens == Corpus.open(tmp_path / "heldout").tokens
    assert dataset.tokenizer.vocabulary == Corpus.open(tmp_path / "heldout").tokenizer.vocabulary


def test_documents_of_a_gpt_have_end_tokens(source: Path, tmp_path: Path) -> None:
    dataset, _ = build_dataset([source], tmp_path, family="gpt")
    end = dataset.tokenizer.eos_token_id
    assert sum((np.asarray(piece) == end).sum() for piece in dataset.text.pieces) == len(dataset.text.documents) - 1
    assert dataset.held_out.pieces[-1][-1:] == [end]


def test_a_finished_corpus_is_read_in_place(corpus: Path, tmp_path: Path) -> None:
    dataset, notes = build_dataset([corpus], tmp_path / "output")
    assert not notes and not (tmp_path / "output").exists()
    assert dataset.tokenizer.vocabulary == Corpus.open(corpus).tokenizer.vocabulary


def test_finished_work_is_reused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = build_dataset([source], tmp_path)
    shard = tmp_path / "corpus" / "shard-000000"
    before = shard.stat().st_ino
    monkeypatch.setattr(
        objectives.MaskedLanguageModeling, "train_tokenizer", lambda *_, **__: pytest.fail("trained again")
    )
    again, notes = build_dataset([source], tmp_path)
    assert again.digest == first.digest and shard.stat().st_ino == before
    assert [line.split(":")[0] for line in notes] == ["corpus"]


def test_a_vocabulary_of_other_settings_is_trained_again(source: Path, tmp_path: Path) -> None:
    build_dataset([source], tmp_path)
    with pytest.raises(InputError, match="holds another corpus: the tokenizer changed"):
        build_dataset([source], tmp_path, vocabulary_vocab_size=110)
    assert Tokenizer.open(tmp_path / "vocabulary").size == 110


def test_a_corpus_that_nothing_was_trained_on_is_built_again(source: Path, tmp_path: Path) -> None:
    build_dataset([source], tmp_path)
    chosen = config(vocabulary_vocab_size=110)
    events = list(prepare(chosen, [str(source)], tmp_path, rebuild=True))
    assert [1 for event in events if isinstance(event, Note) and "the tokenizer changed" in event.message]
    assert open_dataset(chosen, [str(source)], tmp_path, held_out=False).tokenizer.size == 110
    again = prepare(chosen, [str(source)], tmp_path, rebuild=True)
    assert not [1 for event in again if isinstance(event, Note) and "built again" in event.message]


def test_a_vocabulary_of_another_text_is_trained_again(source: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(source.read_bytes())
    before, _ = build_dataset([text], tmp_path / "output")
    text.write_text(story(50, seed=7).replace("river", "planet"), encoding="utf-8")
    with pytest.raises(InputError, match=r"holds another corpus: the source .*text\.txt changed"):
        build_dataset([text], tmp_path / "output")
    assert Tokenizer.open(tmp_path / "output" / "vocabulary").vocabulary != before.tokenizer.vocabulary


def test_different_texts_have_different_digests(source: Path, unseen: Path, tmp_path: Path) -> None:
    plain, _ = build_dataset([source], tmp_path / "a")
    same, _ = build_dataset([source], tmp_path / "b")
    other, _ = build_dataset([source, unseen], tmp_path / "c")
    whole, _ = build_dataset([source], tmp_path / "d", held_out=[unseen])
    assert plain.digest == same.digest
    assert len({plain.digest, other.digest, whole.digest}) == 3


def test_a_given_vocabulary(source: Path, corpus: Path, tmp_path: Path) -> None:
    path = corpus / "tokenizer"
    dataset, notes = build_dataset([source], tmp_path / "a", vocabulary_path=path)
    assert dataset.tokenizer.vocabulary == Tokenizer.open(path).vocabulary
    assert not (tmp_path / "a" / "vocabulary").exists() and len(notes) == 1
    by_file, _ = build_dataset([source], tmp_path / "b", vocabulary_path=path / "tokenizer.json")
    assert by_file.digest == dataset.digest


@pytest.mark.parametrize(
    ("family", "other", "missing"),
    [
        ("bert", "gpt", "cls, sep, mask, pad"),
        ("gpt", "bert", "eos"),
        ("t5", "gpt", r"pad, dropped spans \(<extra_id_0>\)"),
        ("elmo", "gpt", "cls, sep"),
    ],
)
def test_a_tokenizer_without_the_special_tokens_is_refused(
    family: Any, other: Any, missing: str, source: Path, tmp_path: Path
) -> None:
    build_dataset([source], tmp_path / "other", family=other)
    path = tmp_path / "other" / "vocabulary"
    named = {"bert": "a BERT", "gpt": "a GPT-2", "t5": "a T5", "elmo": "an ELMo"}[family]
    message = f"this tokenizer has no token for {missing}, which {named} needs"
    with pytest.raises(InputError, match=message):
        build_dataset([source], tmp_path / "mine", family=family, vocabulary_path=path)
    assert not (tmp_path / "mine" / "corpus").exists()
    with pytest.raises(InputError, match=message):
        build_dataset([tmp_path / "other" / "corpus"], tmp_path / "mine", family=family)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_while_a_corpus_is_built(
    error: type[BaseException], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete parts are preserved, and the next call continues after them and writes the same bytes."""
    monkeypatch.setattr(module, "corpus_events", partial(module.corpus_events, shard_bytes=6000))
    reports: list[Progress] = []

    def interrupt(event: object) -> None:
        if isinstance(event, Progress):
            reports.append(event)
        if len(reports) == 3:
            raise error

    chosen, names = config(), [str(source)]
    with pytest.raises(error):
        drain(prepare(chosen, names, tmp_path / "a"), interrupt)
    left = sorted(os.listdir(tmp_path / "a" / "corpus"))
    assert "shard-000000" in left and "shard-000004" not in left
    again: list[object] = []
    drain(prepare(chosen, names, tmp_path / "a"), again.append)
    encoded = [event for event in again if isinstance(event, Progress)]
    assert encoded[-1].done == encoded[-1].total and 0 < encoded[-1].done < 120  # the rest was reused
    drain(prepare(chosen, names, tmp_path / "b"))
    materials = [open_dataset(chosen, names, tmp_path / name, held_out=False) for name in "ab"]
    assert materials[0].digest == materials[1].digest


def test_finished_corpora_are_read_together(corpus: Path, source: Path, tmp_path: Path) -> None:
    one, _ = build_dataset([corpus], tmp_path / "output")
    both, _ = build_dataset([corpus, corpus], tmp_path / "output")
    assert both.text.tokens + both.held_out.tokens == 2 * (one.text.tokens + one.held_out.tokens)
    assert both.digest != one.digest
    build_dataset([source], tmp_path / "other", vocabulary_vocab_size=100)
    with pytest.raises(InputError, match="another tokenizer than"):
        build_dataset([corpus, tmp_path / "other" / "corpus"], tmp_path / "output")
