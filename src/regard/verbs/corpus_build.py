"""`regard corpus build`: encode raw text as the token shards that `regard pretrain` reads."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import RUN_GROUP, Models, Request, argument, option, verb
from regard.verbs.train import Settings, assignments, settings_option

if TYPE_CHECKING:
    from regard.training.recipes.pretraining.corpus import CorpusResult


class CorpusBuildRequest(Request):
    source: list[str] = argument(
        help="Text files, folders or globs, on this machine or on an object store (s3://BUCKET/FOLDER).",
        metavar="FILES",
        min_length=1,
    )
    output: Path = option(..., "-o", help="Folder of the corpus.", metavar="DIR", writes=True)
    family: str = option("bert", help="The model family to pretrain: it decides on the kind of vocabulary.")
    tokenizer: str | None = option(
        None, help="A tokenizer's file or folder. Default: train a vocabulary on the text.", metavar="DIR"
    )
    vocab_size: int | None = option(None, help="Entries of a new vocabulary, at most.", metavar="N", ge=1)
    key: str = option("text", help="The key of the text in JSON lines.")
    shard_size: str = option("16MiB", help="Text per shard: what a crash loses at most per worker.", metavar="SIZE")
    settings: Settings = settings_option("vocabulary.lowercase=false")
    workers: int = option(1, help="Processes that encode. The bytes do not depend on it.", metavar="N", ge=1, le=256)
    restart: bool = option(False, help="Build all shards again, whatever an earlier run has finished.", group=RUN_GROUP)
    upload: str | None = option(
        None, help="Also copy the finished corpus to an object store.", metavar="s3://BUCKET/FOLDER", group=RUN_GROUP
    )


@verb(
    CorpusBuildRequest,
    result="regard.training.recipes.pretraining.corpus:CorpusResult",
    http=False,
    command="corpus build",
)
def corpus_build(request: CorpusBuildRequest, models: Models) -> Generator[Event, None, CorpusResult]:
    """Encode raw text as token shards, once, for any number of pretraining runs: regard pretrain FAMILY --corpus DIR.

    The same text and settings give the same bytes, with any number of workers. Finished shards are kept: after a crash
    or Ctrl-C the same command continues. Memory holds a cache of words and the shards in work, not the text. A new
    vocabulary is trained on all of the text, which reads it twice more.
    """
    from regard.data.corpus.folder import shard_folder
    from regard.files.file_input import parse_size
    from regard.files.storage import is_remote, normalize
    from regard.training.recipes.pretraining.config import PretrainingConfig
    from regard.training.recipes.pretraining.corpus import build

    if is_remote(request.output):
        address = normalize(request.output)
        raise InputError(
            f"--output is {address}; expected a local folder: shards are built on a disk. --upload {address} copies "
            "the finished corpus"
        )
    options = {"vocabulary.path": request.tokenizer, "vocabulary.vocab_size": request.vocab_size}
    config = PretrainingConfig.read(None, family=request.family, overrides=[*assignments(options), *request.settings])
    try:
        result = yield from build(
            config,
            request.source,
            request.output,
            key=request.key,
            shard_bytes=parse_size(request.shard_size),
            workers=request.workers,
            restart=request.restart,
            upload=request.upload,
        )
    except (Exception, GeneratorExit):
        raise
    except BaseException:  # Ctrl-C, or a signal that ends the process
        some = shard_folder(request.output, 0).is_dir()
        yield Note(
            message=f"the finished shards are kept in {request.output}: the same command continues"
            if some
            else "no shard was finished yet: the same command starts anew"
        )
        raise
    return result
