"""The dataset of a run: a tokenizer, token shards and held-out text, prepared from text files in the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from regard.checkpoints.files import checksums
from regard.checkpoints.files import verify as verify_folder
from regard.data.corpus import Corpus, CorpusProgress, CorpusReport, corpus_events, read_documents
from regard.data.corpus.documents import find_sources
from regard.data.corpus.folder import MANIFEST, OtherCorpus
from regard.data.corpus.vocabulary import SizeError
from regard.errors import InputError
from regard.events import Event, Note, Progress, map_events
from regard.files.checksums import Verify
from regard.files.disk import replace_folder
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.files.storage import file_identity
from regard.models.family import describe_family
from regard.text import Tokenizer
from regard.training.events import Events
from regard.training.pretraining.config import DEFAULT_VOCAB_SIZE, PretrainingConfig
from regard.training.pretraining.objectives import PretrainingDataset, objective_class
from regard.training.pretraining.row_sampler import TokenStream

CORPUS, HELD_OUT, VOCABULARY = "corpus", "heldout", "vocabulary"
ORIGIN = "origin.json"  # how and on what a vocabulary was trained


def prepare(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: Path,
    *,
    held_out: Sequence[str] = (),
    verify: Verify = "auto",
    rebuild: bool = False,
) -> Events[None]:
    """Prepare the files for `open_dataset`. `sources` are text files and folders, or folders of finished corpora.

    Finished corpora must match their checksums. Damaged parts of a corpus that this run built are built again; with
    `rebuild` also a corpus of another text or tokenizer, on which nothing was trained yet.
    """
    if _are_corpora(sources):
        first, *others = (Corpus.open(source, verify=verify) for source in sources)
        for corpus in others:
            if corpus.manifest.tokenizer != first.manifest.tokenizer:
                raise InputError(f"{corpus.folder} has another tokenizer than {first.folder}; build them with one")
        tokenizer = first.tokenizer
        _check_special_tokens(tokenizer, config)
    else:
        tokenizer = yield from _tokenizer(config, sources, output / VOCABULARY)
        _check_special_tokens(tokenizer, config)
        report = yield from _encode(sources, output / CORPUS, tokenizer, verify, rebuild)
        yield from _describe(report)
    if held_out:
        yield from _encode(held_out, output / HELD_OUT, tokenizer, verify, rebuild)


def _encode(
    sources: Sequence[str], folder: Path, tokenizer: Tokenizer, verify: Verify, rebuild: bool
) -> Events[CorpusReport]:
    def event(found: CorpusProgress | Note) -> Event:
        if isinstance(found, Note):
            return Note(message=f"{found.message}; it is built again from the text")
        done, total = found.done - found.resumed, found.documents - found.resumed
        return Progress(stage="encoding", done=done, total=total, unit="documents")

    try:
        return (yield from map_events(corpus_events(sources, folder, tokenizer=tokenizer, verify=verify), event))
    except OtherCorpus as error:
        if not rebuild:
            raise InputError(f"{error.reason}. Resume with the former text, or choose another --output") from None
        yield Note(message=f"{error.reason}; nothing was trained on it, so it is built again")
    return (yield from map_events(corpus_events(sources, folder, tokenizer=tokenizer, restart=True), event))


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
    tokenizer, prepare_text = corpora[0].tokenizer, objective_class(config).prepare_text
    text, held = prepare_text(text, tokenizer), prepare_text(held, tokenizer)
    return PretrainingDataset(text, held, tokenizer, _digest(corpora, whole=held_out))


def _are_corpora(sources: Sequence[str]) -> bool:
    return bool(sources) and all((Path(source) / MANIFEST).is_file() for source in sources)


def _tokenizer(config: PretrainingConfig, sources: Sequence[str], folder: Path) -> Events[Tokenizer]:
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
            yield Note(message=f"{error}; the vocabulary is trained again")
    texts = (paragraph for document in read_documents(sources) for paragraph in document.paragraphs)
    first = next(texts, None)
    if first is None:
        raise InputError(f"the corpus is empty: there is no text in {', '.join(sources)}")
    size = settings.vocab_size or DEFAULT_VOCAB_SIZE
    yield Note(message=f"training a {settings.kind} vocabulary of {size:,} entries")
    try:
        tokenizer = objective_class(config).train_tokenizer(
            chain([first], texts),
            kind=settings.kind,
            size=size,
            exact=bool(settings.vocab_size),
            lowercase=settings.lowercase,
            minimum=settings.min_frequency,
            max_length=config.model.max_position_embeddings,
        )
    except SizeError as error:
        raise InputError(f"{error}: --set vocabulary.vocab_size={error.size}") from None
    if tokenizer.size < size:
        yield Note(message=f"the text supports {tokenizer.size:,} entries only, so the vocabulary has as many")
    with replace_folder(folder) as staging:
        tokenizer.save(staging)
        (staging / ORIGIN).write_bytes(json_bytes(with_checksum(origin)))
        for name, data in checksums(tokenizer.files()).items():
            (staging / name).write_bytes(data)
    return tokenizer


def _origin(config: PretrainingConfig, sources: Sequence[str]) -> dict[str, Any]:
    """Everything the vocabulary depends on; of files size and time, so at worst it is trained again."""
    states = [(str(path), file_identity(path)) for path in find_sources(sources).files]
    return {
        "settings": config.vocabulary.model_dump(),
        "sentinels": config.recipe.objective == "span-corruption",
        "positions": config.model.max_position_embeddings,
        "sources": [[name, state.size, _time_or_tag(state.version)] for name, state in states],
    }


def _time_or_tag(version: str) -> int | str:
    """The time of modification as a number, as earlier versions of Regard wrote it."""
    return int(version) if version.isdecimal() else version


def _digest(corpora: Sequence[Corpus], *, whole: bool) -> str:
    shards = [asdict(shard) for corpus in corpora for shard in corpus.manifest.shards or ()]
    return hashlib.sha256(json_bytes([corpora[0].manifest.tokenizer, shards, whole])).hexdigest()


def _check_special_tokens(tokenizer: Tokenizer, config: PretrainingConfig) -> None:
    missing = objective_class(config).missing_tokens(tokenizer)
    if missing:
        raise InputError(
            f"this tokenizer has no token for {', '.join(missing)}, which "
            f"{describe_family(config.model.family)} needs; "
            "use another, or leave vocabulary.path empty to train one"
        )


def _describe(report: CorpusReport) -> Iterator[Note]:
    counts = report.counts
    message = (
        f"corpus: {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens "
        f"({counts.bytes / 1e6:,.1f} MB of text)"
    )
    for line in (message, *report.notes):
        yield Note(message=line)
