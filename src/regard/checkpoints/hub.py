"""Downloads the files that Regard reads of a model on the Hugging Face hub to the local cache of the hub.

These are the files of the root folder and of the folders that modules.json names: a repository often has the same
model in other formats too. `huggingface_hub` is imported at the first call. Only valid model names are requested, and
downloads are announced.
The library reads HF_HOME when it is imported; HF_ENDPOINT and HF_HUB_OFFLINE also take effect when set later.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.checkpoints.files import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    INDEX,
    TASK,
    TRANSLATION,
    checksum,
    preferred_weights,
    read_index,
    refuse_foreign_files,
)
from regard.checkpoints.module_folders import MODEL_CONFIG, MODULES, ROUTER, TEXT_CONFIGS, read_modules
from regard.errors import InputError, RegardError, suggest
from regard.escaping import raw_stream
from regard.files.checksums import CHECKSUMS, written_files
from regard.files.disk import finish_save, replace_folder
from regard.files.json_files import json_bytes, read_json
from regard.models.family import Checkpoint, known_checkpoints
from regard.text.tokenizer_folder import MARIAN, SENTENCEPIECE
from regard.wording import size_text

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo
    from torch import Tensor

T = TypeVar("T")
CACHE_PREFIX = "models--"  # of a model's folder in the cache
SMALL_FILES = (  # of each folder
    "config.json",
    ADAPTER,
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    *SENTENCEPIECE,
    *MARIAN,
    TASK,
    TRANSLATION,
    MODULES,
    ROUTER,
    *TEXT_CONFIGS,
    MODEL_CONFIG,
    "README.md",
)
FIRST_FILES = (*SMALL_FILES, "1_Pooling/config.json")
MODULE_FOLDER = re.compile(r"\w[\w.-]{0,99}(?:/\w[\w.-]{0,99}){0,3}", re.ASCII)
MAX_MODULES = 50
NAME = re.compile(r"(?:\w(?:[\w.-]{0,94}\w)?/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)
DTYPES = {  # of safetensors, and torch's names for them
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"},
    **{"F8_E5M2": "float8_e5m2", "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32"},
    "I64": "int64",
}
TIMEOUT_SECONDS = 10.0
FIRST_OWNERS = (
    *("google-bert/", "distilbert/", "FacebookAI/", "openai-community/", "google-t5/", "almanach/", "albert/"),
)
MAX_LISTED = 12  # files in an announcement


def short_names() -> dict[str, Checkpoint]:
    """Return the checkpoints that the hub also serves without their owner: "gpt2" is "openai-community/gpt2"."""
    checkpoints = (entry for entry in known_checkpoints() if entry.name.startswith(FIRST_OWNERS))
    return {entry.name.partition("/")[2]: entry for entry in checkpoints}


def split_revision(name: str, revision: str = "main") -> tuple[str, str]:
    """Return the name and the revision of NAME@REVISION, or of NAME and another `revision` than main."""
    name, mark, pinned = name.partition("@")
    if mark and revision not in ("main", pinned):
        raise InputError(f"{name}@{pinned}: the revision is also {revision!r}; give one of the two")
    return name, pinned if mark else revision


def fetch(name: str, *, revision: str = "main", offline: bool | None = None, weights: bool = True) -> Path:
    """Return the folder of a complete local copy of a model on the hub; download it to the hub's cache if necessary.

    A name is 'owner/model' or one of `short_names`; any other name is treated as a missing folder, without a request.
    'owner/model@revision' names a branch, a tag or a commit, as `revision` does. The folder has the name of the commit.
    Downloads are announced on standard error. `offline=True` uses only the cache; None follows HF_HUB_OFFLINE. If the
    hub cannot be reached, a complete copy in the cache is used. Safetensors are preferred to pickles. Without
    `weights`, the files that describe the model suffice.
    """
    name, revision = split_revision(name, revision)
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

    command = f"regard download {name if revision == 'main' else f'{name}@{revision}'}"
    if offline is None:
        offline = constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if offline:
        cached = _cached(name, revision=revision)
        if cached is None:
            raise RegardError(
                f"{name}: no complete copy of revision {revision!r} is in the cache ({constants.HF_HUB_CACHE}), and "
                f"offline mode is on. There is no such folder either: give a local one, or fetch it once with a "
                f"network connection: HF_HUB_OFFLINE=0 {command}"
            )
        return cached
    try:
        return _asking(name, revision, lambda download: download.run(weights=weights))
    except InputError:
        raise
    except RegardError as error:
        cached = _cached(name, revision=revision)
        if cached is None:
            raise RegardError(
                f"{error}, and no complete copy is in the cache; partial downloads are not used. There is no such "
                f"folder either: give a local folder, or run this with a network connection: {command}"
            ) from error
        logging.getLogger(__name__).warning("%s; using the cache", error)
        return cached


def _asking(name: str, revision: str, ask: Callable[[_Download], T]) -> T:
    """Return what the hub answers; InputError if it refuses, RegardError if it cannot be reached."""
    from huggingface_hub import constants

    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    try:
        return ask(_Download(name, revision, endpoint))
    except RegardError:
        raise
    except Exception as error:  # the library raises the errors of its HTTP library
        refused = _refusal(error, name=name, revision=revision, endpoint=endpoint)
        if refused is not None:
            raise refused from error
        reason = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
        if _status(error) == 429:
            reason = "429, too many requests: wait some minutes, or log in with `hf auth login`"
        raise RegardError(f"{name}: could not be fetched from {endpoint} ({reason})") from error


class _Download:
    """A download of the files of a model that are not in the cache; errors of `huggingface_hub` are not handled."""

    def __init__(self, name: str, revision: str, endpoint: str) -> None:
        from huggingface_hub import HfApi

        self.name, self.revision, self.endpoint = name, revision, endpoint
        self._hub = HfApi(endpoint=endpoint)
        self._about = self._ask(revision)
        self._announced: set[str] = set()
        self._fetched: set[str] = set()

    def run(self, *, weights: bool) -> Path:
        """Update the cache and return the folder in it."""
        names = self.names
        self._announce([*FIRST_FILES, *([preferred_weights(names)] if weights else [])])
        # A name stays with the complete copy that it has, unless the weights follow.
        folder = self._fetch(FIRST_FILES, revision=self.revision if weights else str(self._about.sha))
        if self._about.sha != folder.name:  # the branch moved between the two requests
            self._about = self._ask(folder.name)
            names = self.names

        def fetch_small(paths: list[str]) -> None:
            wanted = {f"{path}/{name}" for path in paths for name in SMALL_FILES}
            self._download(sorted(wanted.intersection(names)))

        modules = module_folders(folder, fetch_small)
        model = _model_folder(["", *modules], names)
        if model is None:
            lacks = "config.json" if preferred_weights(names) else "weights that Regard reads"
            raise InputError(
                f"{self.name}: the hub has no {lacks} for it; found: {', '.join(sorted(names)[:12]) or 'nothing'}. "
                "Choose a model with config.json and model.safetensors"
            )
        if not weights and ADAPTER not in names:  # the weights of an adapter are small
            return folder
        # The weights of the model come last: a folder that has them is complete.
        for paths in ({"", *modules} - {model}, {model}):
            chosen = {path: _join(path, preferred_weights(_inside(path, names))) for path in sorted(paths)}
            self._download([name for name in chosen.values() if name])
            shards = {
                _join(path, shard)
                for path, name in chosen.items()
                if name.endswith(INDEX)
                for shard in read_index(folder / name).values()
            }
            self._download(sorted(shards))
        if not _is_complete(folder):
            raise InputError(
                f"{self.name}: the repository lacks files that its own {preferred_weights(_inside(model, names))} "
                "names; choose another revision"
            )
        return folder

    def outline(self, folder: Path) -> RemoteWeights:
        """Return the sizes and outlines of the weights, from the headers of their files."""
        from huggingface_hub.errors import SafetensorsParsingError

        sizes = {file.rfilename: file.size for file in self._about.siblings or []}
        files: dict[str, int | None] = {}
        outlines: dict[Path, dict[str, Tensor]] = {}
        for path in ("", *module_folders(folder)):
            chosen = _join(path, preferred_weights(_inside(path, sizes)))
            parts = [chosen] if chosen else []
            if chosen.endswith(INDEX):
                self._download(parts)
                shards = sorted(set(read_index(folder / chosen).values()))
                parts = [_join(path, shard) for shard in shards]
            for part in parts:
                files[part] = sizes.get(part)
                if part.endswith(".safetensors"):
                    try:
                        found = self._hub.parse_safetensors_file_metadata(self.name, part, revision=folder.name)
                    except SafetensorsParsingError as error:
                        raise InputError(f"{self.name}: {part} is damaged: {error}") from error
                    outlines.setdefault(folder / path, {}).update(
                        {name: _outline(name, tensor.dtype, tensor.shape) for name, tensor in found.tensors.items()}
                    )
        return RemoteWeights(files, outlines if all(name.endswith(".safetensors") for name in files) else None)

    @property
    def names(self) -> list[str]:
        """The files of the repository."""
        return [file.rfilename for file in self._about.siblings or []]

    def _ask(self, revision: str) -> ModelInfo:
        return self._hub.model_info(self.name, revision=revision, timeout=TIMEOUT_SECONDS, files_metadata=True)

    def _download(self, names: Collection[str]) -> None:
        """Download files of the commit, unless this was done before."""
        if new := [name for name in names if name not in self._fetched]:
            self._announce(new)
            self._fetch(new, revision=str(self._about.sha))

    def _fetch(self, names: Collection[str], *, revision: str) -> Path:
        from huggingface_hub import snapshot_download

        self._fetched.update(names)
        options: dict[str, Any] = {"endpoint": self.endpoint, "tqdm_class": _bar()}
        return Path(snapshot_download(self.name, revision=revision, allow_patterns=list(names), **options))

    def _announce(self, names: Collection[str | None]) -> None:
        new = {name for name in names if name} - self._announced
        self._announced |= new
        if new:
            _announce(self.name, self._about, new, endpoint=self.endpoint)


def module_folders(folder: Path, fetch: Callable[[list[str]], object] = len) -> list[str]:
    """Return the folders that modules.json names, and those in a Router's folder, relative to the model's folder.

    `fetch(paths)` is called before folders are read, in order to download their small files.
    """
    found: list[str] = []
    level = [module.place for module in read_modules(folder) if module.place] + _routed_folders(folder)
    while level := [path for path in dict.fromkeys(level) if path not in found]:
        found += level
        wrong = next((path for path in level if not MODULE_FOLDER.fullmatch(path)), None)
        if wrong is not None or len(found) > MAX_MODULES:
            raise InputError(
                f"{folder / MODULES}: refused: {len(found)} modules, one in {str(wrong)[:60]!r}; expected plain names "
                f"of folders inside, and at most {MAX_MODULES} of them"
            )
        fetch(level)
        level = [f"{path}/{name}" for path in level for name in _routed_folders(folder / path)]
    return found


def model_files(folder: Path) -> list[str]:
    """Return the files of a model folder that Regard reads, relative to it."""
    files = []
    for path in ("", *module_folders(folder)):
        inside, start = folder / path, f"{path}/" if path else ""
        present = {one.name for one in inside.iterdir() if one.is_file()} if inside.is_dir() else set()
        weights = preferred_weights(present)
        shards = set(read_index(inside / weights).values()) if weights and weights.endswith(INDEX) else ()
        files += [start + name for name in (*SMALL_FILES, weights, *sorted(shards)) if name in present]
    return files


def copy_model(folder: Path, output: Path) -> None:
    """Copy the files of a model that Regard reads to another folder, all or nothing, with checksums.

    Files of an earlier copy are replaced; other files with their names are refused.
    """
    names = model_files(folder)
    finish_save(output)
    sums = {name: checksum(folder / name) for name in names}
    refuse_foreign_files(output, dict.fromkeys(names), sums=sums)
    with replace_folder(output, remove=sorted(written_files(output) - {*names, CHECKSUMS})) as staging:
        for name in names:
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, staging / name)
        (staging / CHECKSUMS).write_bytes(json_bytes(sums))


@dataclass(frozen=True)
class RemoteWeights:
    """The weights of a model that are not in the cache yet: files with their bytes (None if the hub does not tell), and
    outlines of their tensors by folder, which are None for files other than safetensors."""

    files: dict[str, int | None]
    outlines: dict[Path, dict[str, Tensor]] | None


def remote_weights(folder: Path) -> RemoteWeights | None:
    """Return what the hub tells of the weights that `fetch` did not download to a folder; None if they are there."""
    if not folder.is_dir() or len(folder.parents) < 2 or not folder.parents[1].name.startswith(CACHE_PREFIX):
        return None
    if _is_complete(folder):
        return None
    name = folder.parents[1].name.removeprefix(CACHE_PREFIX).replace("--", "/")
    return _asking(name, folder.name, lambda download: download.outline(folder))


def _routed_folders(folder: Path) -> list[str]:
    """The folders of the modules of a Router in a folder, relative to it."""
    path = folder / ROUTER
    types = read_json(path).get("types") if path.is_file() else None
    return [str(name) for name in types] if isinstance(types, dict) else []


def _outline(name: str, dtype: str, shape: list[int]) -> Tensor:
    """A tensor without values, as the header of a safetensors file describes it."""
    import torch

    found = getattr(torch, DTYPES.get(dtype, ""), None)
    if found is None or any(size < 0 for size in shape):
        raise InputError(f"{name} has the type {dtype} and the shape {shape}; expected one of {', '.join(DTYPES)}")
    return torch.empty(shape, dtype=found, device="meta")


def _announce(name: str, about: ModelInfo, wanted: Collection[str], *, endpoint: str) -> None:
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
    names = [file.rfilename for file in about.siblings or []]
    size = size_text(total) if None not in sizes else _estimate(name) if preferred_weights(names) in wanted else ""
    files = ", ".join(file.rfilename for file in missing[:MAX_LISTED])
    files += f" and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
    logging.getLogger(__name__).warning(
        "%s: downloading %s (%s) from %s into %s", name, files, size or "unknown size", endpoint, cache
    )


def _estimate(name: str) -> str:
    """Return the size of a known model in float32, for a hub that reports no sizes."""
    known = short_names().get(name) or next((entry for entry in known_checkpoints() if entry.name == name), None)
    return "" if known is None else f"about {size_text(known.parameters * 4)} as float32"


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

    def find(names: Collection[str]) -> Path:  # the library knows the files of the repository
        return Path(snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=list(names)))

    try:
        folder = find(SMALL_FILES)
        module_folders(folder, lambda paths: find([f"{path}/{file}" for path in paths for file in SMALL_FILES]))
    except LocalEntryNotFoundError:
        return None
    return folder if _is_complete(folder) else None


def _is_complete(folder: Path) -> bool:
    """Whether the config and all weights, including every shard, are present: a download may have been interrupted."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    model = _model_folder(["", *module_folders(folder)], files)
    if model is None:
        return False
    present = _inside(model, files)
    weights = str(preferred_weights(present))
    return not weights.endswith(INDEX) or present.issuperset(read_index(folder / model / weights).values())


def _model_folder(folders: Collection[str], files: Collection[str]) -> str | None:
    """The first folder with the weights of a model and its config, or its tokenizer alone if it has no Transformer;
    older ones of sentence-transformers are inside."""
    for path in folders:
        present = _inside(path, files)
        weights = preferred_weights(present)
        if weights is not None and (
            weights in ADAPTER_WEIGHTS or not present.isdisjoint(("config.json", "tokenizer.json"))
        ):
            return path
    return None


def _join(path: str, name: str | None) -> str:
    """The path of a file in a folder; empty without a file."""
    return f"{path}/{name}" if path and name else name or ""


def _inside(path: str, files: Collection[str]) -> set[str]:
    """The files in a folder and below it, relative to it."""
    start = f"{path}/" if path else ""
    return {name.removeprefix(start) for name in files if name.startswith(start)}


def _refusal(error: Exception, *, name: str, revision: str, endpoint: str) -> InputError | None:
    """Return the error for a request that the hub refused, or None for other failures."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    status = _status(error)
    if isinstance(error, GatedRepoError):
        return InputError(f"{name}: this model is gated: accept its terms at {endpoint}/{name}, then log in")
    if isinstance(error, RevisionNotFoundError):
        return InputError(
            f"{name}: no revision {revision!r} on the hub; see {endpoint}/{name}/tree/main for the existing ones"
        )
    if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
        return InputError(
            f"{name}: no such model on the hub ({endpoint}), or it is private, and no such folder; check the "
            "spelling ('user/model'), log in with `hf auth login` if it is private, or give the path of a local folder"
        )
    return None


def _status(error: Exception) -> int | None:
    from huggingface_hub.errors import HfHubHTTPError

    return error.response.status_code if isinstance(error, HfHubHTTPError) else None
