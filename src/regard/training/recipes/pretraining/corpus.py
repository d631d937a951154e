"""The text of a pretraining run: a tokenizer, given or trained on the text, and the text as token shards.

`regard pretrain` builds corpora in its output folder, and opens them as a dataset with held-out text; `regard corpus
build` builds one in a folder of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import Field

from regard.checkpoints.files import checksums
from regard.checkpoints.files import verify as verify_folder
from regard.data.corpus import Corpus, CorpusProgress, CorpusReport, corpus_events, read_documents
from regard.data.corpus.documents import find_sources
from regard.data.corpus.folder import MANIFEST, ORIGIN, VOCABULARY, corpus_folder
from regard.data.corpus.reader import check_address, upload_corpus
from regard.data.corpus.shard_cache import CACHE_BYTES
from regard.data.corpus.vocabulary import SizeError
from regard.data.files import is_glob
from regard.errors import InputError
from regard.events import Event, Note, Progress, map_events
from regard.files.checksums import Verify
from regard.files.disk import replace_folder
from regard.files.durable_folder import OtherWork
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.files.storage import exists, file_identity, join
from regard.models.family import describe_family
from regard.render.result import Result
from regard.text import Tokenizer
from regard.training.events import Events
from regard.training.recipes.pretraining.config import DEFAULT_VOCAB_SIZE, PretrainingConfig
from regard.training.recipes.pretraining.objectives import PretrainingDataset, objective_class
from regard.training.recipes.pretraining.token_stream import TokenStream
from regard.wording import count_of

CORPUS, HELD_OUT = "corpus", "heldout"


class CorpusResult(Result):
    """A finished corpus: its folder and what is in it. `seconds` are those of this run, in which `resumed` documents
    were already there."""

    output: str
    documents: int
    sentences: int
    tokens: int
    bytes: int
    shards: int
    vocabulary: int
    uploaded: str | None
    seconds: float
    resumed: int = Field(0, exclude=True)

    def to_text(self) -> str:
        where = f"{self.output} and {self.uploaded}" if self.uploaded else self.output
        return (
            f"{where}: {count_of(self.documents, 'document')}, {self.tokens:,} tokens in "
            f"{count_of(self.shards, 'shard')}, a vocabulary of {self.vocabulary:,}"
        )


def build(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: Path,
    *,
    key: str = "text",
    upload: str | None = None,
    **options: Any,
) -> Events[CorpusResult]:
    """Build a corpus that can be opened with `Corpus.open`; `options` are those of `corpus_events`.

    `upload`: where to copy it to.
    """
    if upload is not None:
        check_address(upload)
    corpus_folder(output).refuse_foreign()
    tokenizer = yield from find_tokenizer(config, sources, output / VOCABULARY, key=key)
    try:
        report = yield from encode(sources, output, tokenizer, key=key, **options)
    except OtherWork as error:
        raise InputError(f"{error.reason}. Choose another --output, or delete that corpus with --restart") from None
    yield from describe(report)
    if upload is not None:
        yield from upload_corpus(output, upload)
    counts = report.counts
    return CorpusResult(
        output=str(output),
        documents=counts.documents,
        sentences=counts.sentences,
        tokens=counts.tokens,
        bytes=counts.bytes,
        shards=report.shards,
        vocabulary=report.vocabulary,
        uploaded=upload,
        seconds=report.seconds,
        resumed=report.resumed.documents,
    )


def encode(sources: Sequence[str], folder: Path, tokenizer: Tokenizer, **options: Any) -> Events[CorpusReport]:
    """Encode text as shards, with the events of a run; `options` are those of `corpus_events`."""

    def event(found: CorpusProgress | Note) -> Event:
        if isinstance(found, Note):
            return Note(message=f"{found.message}; it is built again from the text")
        done, total = found.done - found.resumed, found.documents - found.resumed
        return Progress(stage="encoding", done=done, total=total, unit="documents")

    return (yield from map_events(corpus_events(sources, folder, tokenizer=tokenizer, **options), event))


def find_tokenizer(
    config: PretrainingConfig, sources: Sequence[str], folder: Path, *, key: str = "text"
) -> Events[Tokenizer]:
    """The tokenizer of the settings, or one that is trained on the text and kept in `folder`.

    Raises InputError if it lacks tokens that the model family needs.
    """
    tokenizer = yield from _open_or_train(config, sources, folder, key)
    check_special_tokens(tokenizer, config)
    return tokenizer


def _open_or_train(config: PretrainingConfig, sources: Sequence[str], folder: Path, key: str) -> Events[Tokenizer]:
    settings = config.vocabulary
    if settings.path:
        path = Path(settings.path)
        return Tokenizer.open(path.parent if path.is_file() else path)
    origin, size = _origin(config, sources, key), settings.vocab_size or DEFAULT_VOCAB_SIZE
    if (folder / ORIGIN).is_file():
        try:
            before: dict[str, Any] = read_checked_json(folder / ORIGIN)
            verify_folder(folder)
            if before == origin:
                tokenizer = Tokenizer.open(folder)
                if tokenizer.size == size or not settings.exact:
                    return tokenizer
        except InputError as error:
            yield Note(message=f"{error}; the vocabulary is trained again")
    texts = (paragraph for document in read_documents(sources, key=key) for paragraph in document.paragraphs)
    first = next(texts, None)
    if first is None:
        raise InputError(f"the corpus is empty: there is no text in {', '.join(sources)}")
    yield Note(
        message=f"training a {settings.kind} vocabulary of {'' if settings.exact else 'at most '}{size:,} entries"
    )
    try:
        tokenizer = objective_class(config).train_tokenizer(
            chain([first], texts),
            kind=settings.kind,
            size=size,
            exact=settings.exact,
            lowercase=settings.lowercase,
            minimum=settings.min_frequency,
            max_length=config.model.max_position_embeddings,
        )
    except SizeError as error:
        raise InputError(f"{error}: --set vocabulary.vocab_size={error.size}") from None
    if tokenizer.size < size:
        yield Note(message=f"the vocabulary has {tokenizer.size:,} entries: the text supports no more")
    with replace_folder(folder) as staging:
        tokenizer.save(staging)
        (staging / ORIGIN).write_bytes(json_bytes(with_checksum(origin)))
        for name, data in checksums(tokenizer.files()).items():
            (staging / name).write_bytes(data)
    return tokenizer


def _origin(config: PretrainingConfig, sources: Sequence[str], key: str) -> dict[str, Any]:
    """Everything the vocabulary depends on; of files size and time, so at worst it is trained again."""
    states = [(str(path), file_identity(path)) for path in find_sources(sources).files]
    return ({"key": key} if key != "text" else {}) | {
        "settings": config.vocabulary.model_dump(exclude={"exact"}),  # which changes no vocabulary
        "sentinels": config.recipe.objective == "span-corruption",
        "positions": config.model.max_position_embeddings,
        "sources": [[name, state.size, state.version] for name, state in states],
    }


def check_special_tokens(tokenizer: Tokenizer, config: PretrainingConfig) -> None:
    """Raise InputError if a tokenizer lacks tokens that the model family needs."""
    missing = objective_class(config).missing_tokens(tokenizer)
    if missing:
        raise InputError(
            f"this tokenizer has no token for {', '.join(missing)}, which "
            f"{describe_family(config.model.family)} needs; "
            "use another, or leave vocabulary.path empty to train one"
        )


def describe(report: CorpusReport) -> Iterator[Note]:
    """What is in a corpus, and what may be wrong with it, as notes."""
    counts = report.counts
    message = (
        f"corpus: {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens "
        f"({counts.bytes / 1e6:,.1f} MB of text)"
    )
    for line in (message, *report.notes):
        yield Note(message=line)


def prepare(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: Path,
    *,
    held_out: Sequence[str] = (),
    verify: Verify = "auto",
    rebuild: bool = False,
    cache_bytes: int = CACHE_BYTES,
) -> Events[None]:
    """Prepare the files for `open_dataset`. `sources` are text files and folders, or folders of finished corpora, on
    this machine or on an object store, of whose shards `cache_bytes` are kept on the disk.

    Finished corpora must match their checksums. Damaged parts of a corpus that this run built are built again; with
    `rebuild` also a corpus of another text or tokenizer, on which nothing was trained yet.
    """
    if are_corpora(sources):
        first, *others = (Corpus.open(source, verify=verify, cache_bytes=cache_bytes) for source in sources)
        for corpus in others:
            if corpus.manifest.tokenizer != first.manifest.tokenizer:
                raise InputError(f"{corpus.name} has another tokenizer than {first.name}; build them with one")
        tokenizer = first.tokenizer
        check_special_tokens(tokenizer, config)
    else:
        tokenizer = yield from find_tokenizer(config, sources, output / VOCABULARY)
        report = yield from _encode(sources, output / CORPUS, tokenizer, verify, rebuild)
        yield from describe(report)
    if held_out:
        yield from _encode(held_out, output / HELD_OUT, tokenizer, verify, rebuild)


def _encode(
    sources: Sequence[str], folder: Path, tokenizer: Tokenizer, verify: Verify, rebuild: bool
) -> Events[CorpusReport]:
    try:
        return (yield from encode(sources, folder, tokenizer, verify=verify))
    except OtherWork as error:
        if not rebuild:
            raise InputError(f"{error.reason}. Resume with the former text, or choose another --output") from None
        yield Note(message=f"{error.reason}; nothing was trained on it, so it is built again")
    return (yield from encode(sources, folder, tokenizer, verify=verify, restart=True))


def open_dataset(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: Path,
    *,
    held_out: bool,
    cache_bytes: int = CACHE_BYTES,
) -> PretrainingDataset:
    """Open the prepared files. Without held-out text of its own, the end of the corpus is held out."""
    folders = sources if are_corpora(sources) else [output / CORPUS]
    corpora = [Corpus.open(folder, verify="never", cache_bytes=cache_bytes) for folder in folders]
    text, held = TokenStream.concatenate(*corpora), None
    text.check_cache(config.data.shuffle_shards)
    if held_out:
        held = TokenStream.concatenate(Corpus.open(output / HELD_OUT, verify="never"))
    else:
        text, held = text.split()
    tokenizer, prepare_text = corpora[0].tokenizer, objective_class(config).prepare_text
    text, held = prepare_text(text, tokenizer), prepare_text(held, tokenizer)
    return PretrainingDataset(text, held, tokenizer, _digest(corpora, whole=held_out))


def are_corpora(sources: Sequence[str]) -> bool:
    return bool(sources) and all(not is_glob(source) and exists(join(source, MANIFEST)) for source in sources)


def _digest(corpora: Sequence[Corpus], *, whole: bool) -> str:
    shards = [asdict(shard) for corpus in corpora for shard in corpus.manifest.shards or ()]
    return hashlib.sha256(json_bytes([corpora[0].manifest.tokenizer, shards, whole])).hexdigest()
