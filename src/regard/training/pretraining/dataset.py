"""The dataset of a run: a tokenizer, token shards and held-out text, prepared from text files in the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard import events
from regard.checkpoints.files import checksums
from regard.checkpoints.files import verify as verify_folder
from regard.data.corpus import Corpus, CorpusProgress, CorpusReport, build_corpus, read_documents, train_tokenizer
from regard.data.corpus.documents import find_sources
from regard.data.corpus.folder import MANIFEST
from regard.data.corpus.vocabulary import SizeError
from regard.errors import InputError
from regard.events import Note
from regard.files.checksums import Verify
from regard.files.disk import replace_folder
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.models.family import describe_family
from regard.text import Tokenizer
from regard.training.events import OnEvent
from regard.training.pretraining.config import Family, PretrainingConfig
from regard.training.pretraining.span_corruption import sentinels_of, train_with_sentinels
from regard.training.pretraining.token_stream import TokenStream

CORPUS, HELD_OUT, VOCABULARY = "corpus", "heldout", "vocabulary"
ORIGIN = "origin.json"  # how and on what a vocabulary was trained

# The special tokens that a family requires.
ROLES: dict[Family, tuple[str, ...]] = {
    "bert": ("cls", "sep", "mask", "pad"),
    "gpt": ("eos",),
    "t5": ("pad", "eos"),
    "elmo": ("cls", "sep"),
}


@dataclass(frozen=True, eq=False)
class PretrainingDataset:
    """Text to train on, held-out text, the tokenizer of both, and a digest of the training text."""

    text: TokenStream
    held_out: TokenStream
    tokenizer: Tokenizer
    digest: str


def prepare(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: Path,
    *,
    held_out: Sequence[str] = (),
    verify: Verify = "auto",
    on_event: OnEvent,
) -> None:
    """Prepare the files for `open_dataset`. `sources` are text files and folders, or folders of finished corpora.

    Finished corpora must match their checksums. Damaged parts of a corpus that this run made are made again.
    """

    def on_damaged(problem: str) -> None:
        on_event(Note(message=f"{problem}; it is made again from the text"))

    def on_progress(report: CorpusProgress) -> None:
        if report.resumed < report.documents:
            done, total = report.done - report.resumed, report.documents - report.resumed
            on_event(events.Progress(stage="encoding", done=done, total=total, unit="documents"))

    if _are_corpora(sources):
        first, *others = (Corpus.open(source, verify=verify) for source in sources)
        for corpus in others:
            if corpus.manifest.tokenizer != first.manifest.tokenizer:
                raise InputError(f"{corpus.folder} has another tokenizer than {first.folder}; build them with one")
        tokenizer = first.tokenizer
        _check_special_tokens(tokenizer, config)
    else:
        tokenizer = _tokenizer(config, sources, output / VOCABULARY, on_event)
        _check_special_tokens(tokenizer, config)
        report = build_corpus(
            sources,
            output / CORPUS,
            tokenizer=tokenizer,
            verify=verify,
            on_progress=on_progress,
            on_damaged=on_damaged,
        )
        _describe(report, on_event)
    if held_out:
        build_corpus(held_out, output / HELD_OUT, tokenizer=tokenizer, verify=verify, on_damaged=on_damaged)


def open_dataset(
    config: PretrainingConfig, sources: Sequence[str], output: Path, *, held_out: bool
) -> PretrainingDataset:
    """Open the prepared files. Without held-out text of its own, the end of the corpus is held out."""
    corpora = [
        Corpus.open(folder, verify="never") for folder in (sources if _are_corpora(sources) else [output / CORPUS])
    ]
    text, held = TokenStream.concatenate(*corpora), None
    if held_out:
        held = TokenStream.concatenate(Corpus.open(output / HELD_OUT, verify="never"))
    else:
        text, held = text.split()
    tokenizer = corpora[0].tokenizer
    if config.model.family == "gpt":
        assert tokenizer.eos_token_id is not None
        text, held = text.with_end_tokens(tokenizer.eos_token_id), held.with_end_tokens(tokenizer.eos_token_id)
    return PretrainingDataset(text, held, tokenizer, _digest(corpora, whole=held_out))


def _are_corpora(sources: Sequence[str]) -> bool:
    return bool(sources) and all((Path(source) / MANIFEST).is_file() for source in sources)


def _tokenizer(config: PretrainingConfig, sources: Sequence[str], folder: Path, on_event: OnEvent) -> Tokenizer:
    settings = config.vocabulary
    if settings.path:
        path = Path(settings.path)
        return Tokenizer.open(path.parent if path.is_file() else path)
    origin = _origin(config, sources)
    if (folder / ORIGIN).is_file():
        try:
            before: dict[str, Any] = read_checked_json(folder / ORIGIN)
            verify_folder(folder)
            if before | {"settings": config.with_new_keys(VOCABULARY, before["settings"])} == origin:
                return Tokenizer.open(folder)
        except InputError as error:
            on_event(Note(message=f"{error}; the vocabulary is trained again"))
    texts = (paragraph for document in read_documents(sources) for paragraph in document.paragraphs)
    first = next(texts, None)
    if first is None:
        raise InputError(f"the corpus is empty: there is no text in {', '.join(sources)}")
    on_event(Note(message=f"training a {settings.kind} vocabulary of {settings.vocab_size:,} entries"))
    try:
        tokenizer = _trained(chain([first], texts), config)
    except SizeError as error:
        raise InputError(f"{error}: --set vocabulary.vocab_size={error.size}") from None
    with replace_folder(folder) as staging:
        tokenizer.save(staging)
        (staging / ORIGIN).write_bytes(json_bytes(with_checksum(origin)))
        for name, data in checksums(tokenizer.files()).items():
            (staging / name).write_bytes(data)
    return tokenizer


def _trained(texts: Iterator[str], config: PretrainingConfig) -> Tokenizer:
    settings, limit = config.vocabulary, config.model.max_position_embeddings
    if config.model.family == "t5":
        return train_with_sentinels(
            texts,
            size=settings.vocab_size,
            lowercase=settings.lowercase,
            minimum=settings.min_frequency,
            max_length=limit,
        )
    return train_tokenizer(
        texts,
        kind=settings.kind,
        size=settings.vocab_size,
        lowercase=settings.lowercase,
        minimum=settings.min_frequency,
        max_length=limit,
    )


def _origin(config: PretrainingConfig, sources: Sequence[str]) -> dict[str, Any]:
    """Everything the vocabulary depends on; of files size and time, so at worst it is trained again."""
    states = [(str(path), path.stat()) for path in find_sources(sources).files]
    return {
        "settings": config.vocabulary.model_dump(),
        "sentinels": config.model.family == "t5",
        "positions": config.model.max_position_embeddings,
        "sources": [[name, state.st_size, state.st_mtime_ns] for name, state in states],
    }


def _digest(corpora: Sequence[Corpus], *, whole: bool) -> str:
    shards = [shard.json() for corpus in corpora for shard in corpus.manifest.shards or ()]
    return hashlib.sha256(json_bytes([corpora[0].manifest.tokenizer, shards, whole])).hexdigest()


def _check_special_tokens(tokenizer: Tokenizer, config: PretrainingConfig) -> None:
    missing = [role for role in ROLES[config.model.family] if getattr(tokenizer, f"{role}_token_id") is None]
    if config.model.family == "t5" and not sentinels_of(tokenizer):
        missing.append("dropped spans (<extra_id_0>)")
    if missing:
        raise InputError(
            f"this tokenizer has no token for {', '.join(missing)}, which "
            f"{describe_family(config.model.family)} needs; "
            "use another, or leave vocabulary.path empty to train one"
        )


def _describe(report: CorpusReport, on_event: OnEvent) -> None:
    counts = report.counts
    message = (
        f"corpus: {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens "
        f"({counts.bytes / 1e6:,.1f} MB of text)"
    )
    for line in (message, *report.notes):
        on_event(Note(message=line))
