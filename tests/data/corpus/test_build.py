"""Building a corpus: boundaries, resuming after a kill, reproducible bytes, and rejected input."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.data.corpus import Corpus, CorpusProgress, Document, build_corpus, read_documents, train_tokenizer
from regard.data.corpus import parts as module
from regard.data.corpus.sentences import split_sentences
from regard.errors import InputError, RegardError
from regard.text import Tokenizer

SMALL = 700  # bytes per shard: several documents


class Stop(BaseException):
    """Simulates a KeyboardInterrupt."""


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a corpus except its report, which contains timings."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "report.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def stop_after(shards: int, folder: Path) -> Callable[[CorpusProgress], None]:
    def on_progress(progress: CorpusProgress) -> None:
        if len(list(folder.glob("shard-*"))) == shards:
            raise Stop

    return on_progress


def sentences_of(document: Document) -> list[str]:
    return [text[start:end] for text in document.paragraphs for start, end in split_sentences(text)]


def check_text(corpus: Corpus, documents: list[Document], tokenizer: Tokenizer) -> None:
    """Check that every sentence is in its document and equals the source."""
    assert len(corpus) == len(documents)
    for number, document in enumerate(documents):
        expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in sentences_of(document)]
        assert [ids.tolist() for ids in corpus.document(number)] == expected
    assert corpus.sentences == sum(len(sentences_of(document)) for document in documents)


def test_every_sentence_is_in_its_document(
    source: Path, documents: list[Document], wordpiece: Tokenizer, tmp_path: Path
) -> None:
    report = build_corpus(source, tmp_path / "out", tokenizer=wordpiece, shard_bytes=SMALL)
    corpus = Corpus.open(tmp_path / "out", verify="always")
    assert corpus.shards == report.shards > 3
    check_text(corpus, documents, wordpiece)
    for index, document in enumerate(documents):
        for ids, text in zip(corpus.document(index), sentences_of(document), strict=True):
            assert wordpiece.decode(ids) == text.lower()


def test_byte_level_documents_are_whole_texts(
    source: Path, documents: list[Document], bpe: Tokenizer, tmp_path: Path
) -> None:
    build_corpus(source, tmp_path / "out", tokenizer=bpe, shard_bytes=SMALL)
    corpus = Corpus.open(tmp_path / "out")
    for index, document in enumerate(documents):
        text = "\n".join(document.paragraphs)
        ids = [number for sentence in corpus.document(index) for number in sentence.tolist()]
        assert ids == bpe.encode(text).ids
        assert bpe.decode(ids) == text
        assert len(corpus.document(index)) == len(sentences_of(document))


def test_counts_of_the_report(source: Path, documents: list[Document], wordpiece: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    source = source.rename(tmp_path / "texts" / "a.txt")
    (tmp_path / "texts" / "b.png").write_bytes(b"")
    seen: list[CorpusProgress] = []
    report = build_corpus(tmp_path / "texts", tmp_path / "out", tokenizer=wordpiece, on_progress=seen.append)
    ids = [
        wordpiece.encode(text, add_special_tokens=False).ids
        for document in documents
        for text in sentences_of(document)
    ]
    counts = report.counts
    assert counts.documents == 40 and counts.sentences == len(ids)
    assert counts.paragraphs == sum(len(document.paragraphs) for document in documents)
    assert counts.bytes == sum(len(text) for document in documents for text in document.paragraphs)
    assert counts.tokens == sum(map(len, ids)) and counts.longest_sentence == max(map(len, ids))
    assert counts.unknown == sum(number == wordpiece.unk_token_id for one in ids for number in one)
    assert report.json()["tokens_per_second"] > 0
    assert "b.png" in report.notes[0]
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["counts"]["tokens"] == counts.tokens and written["tokens_per_second"] > 0
    assert seen[-1] == CorpusProgress(40, 40, 0, counts.tokens)


def test_formats_give_the_same_corpus(source: Path, text: str, wordpiece: Tokenizer, tmp_path: Path) -> None:
    lines = tmp_path / "text.jsonl.xz"
    lines.write_bytes(lzma.compress("\n".join(json.dumps({"text": part}) for part in text.split("\n\n")).encode()))
    for name, path in (("a", source), ("b", lines)):
        build_corpus(path, tmp_path / name, tokenizer=wordpiece, shard_bytes=SMALL)
    first, second = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == ["regard.json"]


def test_unknown_words_and_sentences_without_a_token(wordpiece: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("The river ☃ city.\n\n\u200b\n\nThe city. \u200b\u200b. The river.\n", encoding="utf-8")
    report = build_corpus(path, tmp_path / "out", tokenizer=wordpiece)
    assert report.counts.documents == 2 and report.counts.unknown == 1 and report.counts.dropped == 1
    path.write_text("\u200b\n\n\u200b\n", encoding="utf-8")
    with pytest.raises(InputError, match="the corpus has no tokens"):
        build_corpus(path, tmp_path / "none", tokenizer=wordpiece, shard_bytes=1)
    assert not (tmp_path / "none").exists()


def test_resumed_build_gives_the_same_bytes(source: Path, text: str, wordpiece: Tokenizer, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(text.replace("river", "engine"), encoding="utf-8")
    sources = [source, other]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    build_corpus(sources, whole, tokenizer=wordpiece, shard_bytes=SMALL)
    total = len(list(whole.glob("shard-*")))
    for shards in (1, total // 2, total - 2):
        with pytest.raises(Stop):
            build_corpus(sources, cut, tokenizer=wordpiece, shard_bytes=SMALL, on_progress=stop_after(shards, cut))
        with pytest.raises(InputError, match="unfinished"):
            Corpus.open(cut)
        before = {path: path.stat().st_mtime_ns for path in cut.glob("shard-*/*")}
        assert len(before) == 4 * shards
    report = build_corpus(sources, cut, tokenizer=wordpiece, shard_bytes=SMALL)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert report.resumed.documents == sum(
        json.loads((cut / f"shard-{number:06d}" / "shard.json").read_text())["counts"]["documents"]
        for number in range(total - 2)
    )
    assert contents(cut) == contents(whole)


def test_a_second_call_does_nothing(
    source: Path, wordpiece: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_corpus(source, tmp_path / "out", tokenizer=wordpiece, shard_bytes=SMALL)
    monkeypatch.setattr(module, "parse_documents", None)
    moved = source.rename(tmp_path / "moved.txt")
    again = build_corpus(moved, tmp_path / "out", tokenizer=wordpiece, shard_bytes=SMALL)
    assert again.counts == again.resumed == first.counts and again.json()["tokens_per_second"] == 0


def test_resuming_with_other_settings_is_rejected(
    source: Path, wordpiece: Tokenizer, bpe: Tokenizer, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    build_corpus(source, folder, tokenizer=wordpiece, shard_bytes=SMALL)
    before = contents(folder)
    with pytest.raises(InputError, match=r"another corpus: .*tokenizer.*spaces was False and is True"):
        build_corpus(source, folder, tokenizer=bpe, shard_bytes=SMALL)
    with pytest.raises(InputError, match="shard_bytes was 700 and is 800"):
        build_corpus(source, folder, tokenizer=wordpiece, shard_bytes=800)
    with source.open("a") as file:
        file.write("More.\n")
    with pytest.raises(InputError, match=r"the source .*text\.txt changed.*restart"):
        build_corpus(source, folder, tokenizer=wordpiece, shard_bytes=SMALL)
    assert contents(folder) == before
    build_corpus(source, folder, tokenizer=bpe, restart=True)
    assert len(Corpus.open(folder)) == 40


def test_source_that_changes_during_the_build_is_rejected(source: Path, wordpiece: Tokenizer, tmp_path: Path) -> None:
    def append(progress: CorpusProgress) -> None:
        with source.open("a") as file:
            file.write("x")

    with pytest.raises(InputError, match="changed while it was read"):
        build_corpus(source, tmp_path / "out", tokenizer=wordpiece, shard_bytes=SMALL, on_progress=append)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the corpus is empty"), (b"\n \n", "the corpus is empty"), (b"Good.\n\n" * 500 + b"\xff", "line 1001")],
)
def test_invalid_sources_are_rejected_before_the_build(
    content: bytes, message: str, wordpiece: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ShardWriter", None)
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        build_corpus(path, tmp_path / "out", tokenizer=wordpiece, shard_bytes=SMALL)
    assert not (tmp_path / "out").exists()


def test_note_about_a_single_document(wordpiece: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("The river.\nThe city.\n")
    report = build_corpus(path, tmp_path / "out", tokenizer=wordpiece)
    assert "one document" in report.notes[0]


def test_existing_files_in_the_output_folder_are_rejected(source: Path, wordpiece: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds 'text\.txt'"):
        build_corpus(source, tmp_path, tokenizer=wordpiece)
    with pytest.raises(InputError, match="shard_bytes"):
        build_corpus(source, tmp_path / "out", tokenizer=wordpiece, shard_bytes=0)
    with pytest.raises(RegardError, match="cannot be written"):
        build_corpus(source, source / "out", tokenizer=wordpiece)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "names", [["tokenizer/mine"], ["report.json"], ["shard-000000/a"], ["regard.json", "report.json"]]
)
def test_foreign_files_with_corpus_file_names_are_rejected(
    source: Path, wordpiece: Tokenizer, tmp_path: Path, names: list[str], restart: bool
) -> None:
    for name in names:
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_text('{"name": "mine"}')
    with pytest.raises(InputError, match=r"f is not empty|f/regard\.json: not a record"):
        build_corpus(source, tmp_path / "f", tokenizer=wordpiece, restart=restart)
    assert (
        sorted(str(path.relative_to(tmp_path / "f")) for path in (tmp_path / "f").rglob("*") if path.is_file()) == names
    )


def test_foreign_files_in_a_corpus_survive_a_restart(source: Path, wordpiece: Tokenizer, tmp_path: Path) -> None:
    build_corpus(source, tmp_path / "f", tokenizer=wordpiece)
    mine = [tmp_path / "f" / name for name in ("tokenizer/mine", "shard-000000/mine")]
    for path in mine:
        path.write_text("mine")
    build_corpus(source, tmp_path / "f", tokenizer=wordpiece, restart=True)
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    Corpus.open(tmp_path / "f")


def test_large_vocabularies_use_32_bit_ids(
    source: Path, documents: list[Document], wordpiece: Tokenizer, tmp_path: Path
) -> None:
    tokens = [*wordpiece.vocabulary, *(f"[unused{number}]" for number in range(70_000))]
    tokens.append(tokens.pop(tokens.index("river")))  # its id requires more than 16 bits
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    large = Tokenizer.open(tmp_path)
    build_corpus(source, tmp_path / "small", tokenizer=wordpiece)
    build_corpus(source, tmp_path / "large", tokenizer=large)
    small, wide = Corpus.open(tmp_path / "small"), Corpus.open(tmp_path / "large")
    assert small.shard(0).tokens.dtype == np.uint16 and wide.shard(0).tokens.dtype == np.uint32
    assert int(wide.shard(0).tokens.max()) == large.size - 1 > 65_535
    check_text(wide, documents, large)


def test_build_from_real_text(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    with lzma.open(shared_data("corpus/heldout.txt.xz"), "rt", encoding="utf-8") as file:
        content = file.read(400_000)
    path = tmp_path / "real.txt.xz"
    path.write_bytes(lzma.compress(content.encode(), preset=0))
    documents = list(read_documents(path))
    tokenizer = train_tokenizer(content.split("\n"), size=4000)
    report = build_corpus(path, tmp_path / "out", tokenizer=tokenizer, shard_bytes=100_000)
    assert report.shards > 2 and report.counts.unknown == 0 and report.counts.dropped == 0
    check_text(Corpus.open(tmp_path / "out", verify="always"), documents, tokenizer)
