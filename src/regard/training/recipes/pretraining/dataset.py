"""The dataset of a run: a tokenizer, token shards and held-out text, prepared from text files in the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from regard.data.corpus import Corpus, CorpusReport
from regard.data.corpus.folder import MANIFEST, VOCABULARY
from regard.data.corpus.shard_cache import CACHE_BYTES
from regard.data.files import is_glob
from regard.errors import InputError
from regard.events import Note
from regard.files.checksums import Verify
from regard.files.durable_folder import OtherWork
from regard.files.json_files import json_bytes
from regard.files.storage import exists, join
from regard.text import Tokenizer
from regard.training.events import Events
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import check_special_tokens, describe, encode, find_tokenizer
from regard.training.recipes.pretraining.objectives import PretrainingDataset, objective_class
from regard.training.recipes.pretraining.token_stream import TokenStream

CORPUS, HELD_OUT = "corpus", "heldout"


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
