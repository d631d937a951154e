"""Downloads the files that Regard reads of a model on the Hugging Face hub to the local cache of the hub.

`huggingface_hub` is imported at the first call. Only valid model names are requested, and downloads are announced.
The library reads HF_HOME when it is imported; HF_ENDPOINT and HF_HUB_OFFLINE also take effect when set later.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.checkpoints.files import INDEX, preferred_weights, read_index
from regard.errors import InputError, RegardError, suggest
from regard.escaping import raw_stream
from regard.models.family import Checkpoint, known_checkpoints
from regard.text.tokenizer_folder import MARIAN, SENTENCEPIECE

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

SMALL_FILES = (
    "config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    *SENTENCEPIECE,
    *MARIAN,
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
NAME = re.compile(r"(?:\w(?:[\w.-]{0,94}\w)?/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)
TIMEOUT_SECONDS = 10.0
FIRST_OWNERS = (
    *("google-bert/", "distilbert/", "FacebookAI/", "openai-community/", "google-t5/", "almanach/", "albert/"),
)
MAX_LISTED = 12  # files in an announcement


def short_names() -> dict[str, Checkpoint]:
    """Return the checkpoints that the hub also serves without their owner: "gpt2" is "openai-community/gpt2"."""
    checkpoints = (entry for entry in known_checkpoints() if entry.name.startswith(FIRST_OWNERS))
    return {entry.name.partition("/")[2]: entry for entry in checkpoints}


def fetch(name: str, *, revision: str = "main", offline: bool | None = None) -> Path:
    """Return the folder of a complete local copy of a model on the hub; download it to the hub's cache if necessary.

    A name is 'owner/model' or one of `short_names`; any other name is treated as a missing folder, without a request.
    Downloads are announced on standard error. `offline=True` uses only the cache; None follows HF_HUB_OFFLINE. If the
    hub cannot be reached, a complete copy in the cache is used. Safetensors are preferred to pickles.
    """
    if not NAME.fullmatch(name) or re.search(r"--|\.\.|\.git$", name):
        raise InputError(
            f"{name!r} is not the name of a model on the hub: expected 'user/model' or 'model' in letters, digits, "
            "'-', '_' and '.'; if it is a folder, check that the path exists"
        )
    if "/" not in name and name not in short_names():
        raise InputError(
            f"{name!r} is neither a folder nor the name of a model on the hub: expected 'owner/model', or one of the "
            f"names known without their owner; {suggest(name, short_names())}"
        )
    if not re.fullmatch(r"\w[\w./-]*", revision, re.ASCII) or ".." in revision:
        raise InputError(f"{revision!r} is not a revision: expected a branch, a tag or a commit of {name!r}")
    from huggingface_hub import constants

    command = _command(name, revision=revision)
    if offline is None:
        offline = constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if offline:
        cached = _cached(name, revision=revision)
        if cached is None:
            raise RegardError(
                f"{name}: no complete copy of revision {revision!r} is in the cache ({constants.HF_HUB_CACHE}), and "
                f"offline mode is on. Give a local folder, or fetch it once with a network connection: {command}"
            )
        return cached
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    try:
        return _download(name, revision=revision, endpoint=endpoint)
    except RegardError:
        raise
    except Exception as error:  # the library raises the errors of its HTTP library
        refused = _refusal(error, name=name, revision=revision, endpoint=endpoint)
        if refused is not None:
            raise refused from error
        reason = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
        cached = _cached(name, revision=revision)
        if cached is None:
            raise RegardError(
                f"{name}: could not be fetched from {endpoint} ({reason}), and no complete copy is in the cache; "
                f"partial downloads are not used. Give a local folder, or run this with a network connection: {command}"
            ) from error
        logging.getLogger(__name__).warning("%s: not available from %s (%s); using the cache", name, endpoint, reason)
        return cached


def _download(name: str, *, revision: str, endpoint: str) -> Path:
    """Update the cache and return the folder in it; errors of `huggingface_hub` are not handled."""
    from huggingface_hub import HfApi, snapshot_download

    hub = HfApi(endpoint=endpoint)
    options: dict[str, Any] = {"endpoint": endpoint, "tqdm_class": _bar()}
    about = hub.model_info(name, revision=revision, timeout=TIMEOUT_SECONDS, files_metadata=True)
    _announce(name, about, {*SMALL_FILES, preferred_weights(_names(about))}, endpoint=endpoint)
    folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(SMALL_FILES), **options))
    commit = folder.name
    if about.sha != commit:  # the branch moved between the two requests
        about = hub.model_info(name, revision=commit, timeout=TIMEOUT_SECONDS, files_metadata=True)
    names = _names(about)
    weights = preferred_weights(names)
    if weights is None or "config.json" not in names:
        raise InputError(
            f"{name}: the hub has no {'config.json' if weights else 'weights that Regard reads'} for it; found: "
            f"{', '.join(sorted(names)[:12]) or 'nothing'}. Choose a model with config.json and model.safetensors"
        )
    snapshot_download(name, revision=commit, allow_patterns=[weights], **options)
    if weights.endswith(INDEX):
        shards = sorted(set(read_index(folder / weights).values()))
        _announce(name, about, shards, endpoint=endpoint)
        snapshot_download(name, revision=commit, allow_patterns=shards, **options)
    if not _is_complete(folder):
        raise InputError(f"{name}: the repository lacks files that its own {weights} names; choose another revision")
    return folder


def _names(about: ModelInfo) -> list[str]:
    return [file.rfilename for file in about.siblings or []]


def _announce(name: str, about: ModelInfo, wanted: Collection[str | None], *, endpoint: str) -> None:
    """Log the names and the size of the files to download, if any are not in the cache."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    cache = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")
    missing = []
    for file in about.siblings or []:
        content = file.lfs.sha256 if file.lfs is not None else file.blob_id
        paths = [cache / "snapshots" / str(about.sha) / file.rfilename, cache / "blobs" / str(content)]
        if file.rfilename in wanted and not any(path.is_file() for path in paths):
            missing.append(file)
    if not missing:
        return
    sizes = [file.size for file in missing]
    total = sum(size for size in sizes if size is not None)
    size = _size(total) if None not in sizes else _estimate(name) if preferred_weights(_names(about)) in wanted else ""
    files = ", ".join(file.rfilename for file in missing[:MAX_LISTED])
    files += f" and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
    logging.getLogger(__name__).warning(
        "%s: downloading %s (%s) from %s into %s", name, files, size or "unknown size", endpoint, cache
    )


def _size(count: int) -> str:
    """Format a number of bytes: 1.34 GB, 440.5 MB, 12 kB."""
    return (
        f"{count / 1e9:.2f} GB"
        if count >= 1e9
        else f"{count / 1e6:.1f} MB"
        if count >= 1e6
        else f"{count / 1e3:.0f} kB"
    )


def _estimate(name: str) -> str:
    """Return the size of a known model in float32, for a hub that reports no sizes."""
    known = short_names().get(name) or next((entry for entry in known_checkpoints() if entry.name == name), None)
    return "" if known is None else f"about {_size(known.parameters * 4)} as float32"


def _bar() -> type[Any]:
    """Return the library's progress bar, writing to the raw standard error: escaping would break its "\\r"."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{"file": raw_stream(sys.stderr), **options})  # type: ignore[no-untyped-call]

    return Bar


def _cached(name: str, *, revision: str) -> Path | None:
    """Return the folder of a complete copy in the cache, or None. Makes no requests."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=list(SMALL_FILES))
        )
    except LocalEntryNotFoundError:
        return None
    return folder if _is_complete(folder) else None


def _is_complete(folder: Path) -> bool:
    """Whether the config and all weights, including every shard, are present: a download may have been interrupted."""
    present = {path.name for path in folder.iterdir() if path.is_file()}
    weights = preferred_weights(present)
    if weights is None or "config.json" not in present:
        return False
    return not weights.endswith(INDEX) or present.issuperset(read_index(folder / weights).values())


def _refusal(error: Exception, *, name: str, revision: str, endpoint: str) -> InputError | None:
    """Return the error for a request that the hub refused, or None for other failures."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, GatedRepoError):
        return InputError(f"{name}: this model is gated: accept its terms at {endpoint}/{name}, then log in")
    if isinstance(error, RevisionNotFoundError):
        return InputError(
            f"{name}: no revision {revision!r} on the hub; see {endpoint}/{name}/tree/main for the existing ones"
        )
    if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
        return InputError(
            f"{name}: no such model on the hub ({endpoint}), or it is private; check the spelling ('user/model'), "
            "log in with `hf auth login` if it is private, or give the path of a local folder"
        )
    return None


def _command(name: str, *, revision: str) -> str:
    chosen = "" if revision == "main" else f", revision={revision!r}"
    return f'HF_HUB_OFFLINE=0 python -c "from regard.checkpoints.hub import fetch; fetch({name!r}{chosen})"'
