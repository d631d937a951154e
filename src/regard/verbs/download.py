"""`regard download`: a model of the hub into the cache, or into a folder for a machine without a network."""

from __future__ import annotations

from pathlib import Path

from regard.render.result import Result
from regard.verbs.base import Models, Request, argument, option, verb
from regard.wording import count_of, size_text


class DownloadResult(Result):
    """Where the model is, its commit, files and bytes; `base_model` is that of an adapter of PEFT."""

    name: str
    revision: str
    commit: str
    folder: str
    cache: str | None  # the cache's folder for this model; null if it was copied to `folder`
    files: int
    size: int
    base_model: str | None = None

    def to_text(self) -> str:
        pinned = self.name if self.revision == "main" else f"{self.name}@{self.revision}"
        lines = [
            f"{self.name}: commit {self.commit}, {count_of(self.files, 'file')}, {size_text(self.size)}",
            f"Folder: {self.folder}",
            "On a machine without a network:",
        ]
        if self.cache is None:
            lines += ["  copy this folder there", f"  regard models {Path(self.folder).name}"]
        else:
            lines += [
                f"  copy {self.cache} into its cache ($HF_HUB_CACHE, or ~/.cache/huggingface/hub), with its links",
                f"  HF_HUB_OFFLINE=1 regard models {pinned}",
            ]
        if self.base_model is not None:
            lines.append(
                f"It is an adapter of {self.base_model}, which is needed too: regard download {self.base_model}"
                + ("" if self.cache is not None else ", and base_model_name_or_path in adapter_config.json names it")
            )
        return "\n".join(lines)


class DownloadRequest(Request):
    name: str = argument(help="A model on the Hugging Face hub, such as owner/model or owner/model@revision.")
    revision: str = option("main", help="A branch, a tag or a commit.", metavar="REVISION")
    output: Path | None = option(
        None, "-o", help="Folder to write; default: the cache of the hub.", metavar="DIR", writes=True
    )


@verb(DownloadRequest, result="regard.verbs.download:DownloadResult", http=False)
def download(request: DownloadRequest, models: Models) -> DownloadResult:
    """Download a model of the Hugging Face hub: only the files that Regard reads.

    They go to the cache of the hub, where every command finds them by the model's name, or to a folder with checksums
    that can be copied to a machine without a network. The command says what to do there. If a connection breaks, the
    file goes on where it stopped; files that are complete are not downloaded again by the next call.

    Example: regard download sentence-transformers/all-MiniLM-L6-v2 --output minilm
    """
    from regard.checkpoints.files import ADAPTER
    from regard.checkpoints.hub import copy_model, fetch, model_files, split_revision
    from regard.files.json_files import read_json

    name, revision = split_revision(request.name, request.revision)
    source = fetch(name, revision=revision)
    base = read_json(source / ADAPTER).get("base_model_name_or_path") if (source / ADAPTER).is_file() else None
    names = model_files(source)
    if request.output is not None:
        copy_model(source, request.output)
    return DownloadResult(
        name=name,
        revision=revision,
        commit=source.name,
        folder=str(source if request.output is None else request.output),
        cache=str(source.parents[1]) if request.output is None else None,
        files=len(names),
        size=sum((source / file).stat().st_size for file in names),
        base_model=base if isinstance(base, str) else None,
    )
