"""Fine-tuning started from the page: start a job, watch it, stop it."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from regard.errors import InputError, check_choice
from regard.known import DEFAULT_MODEL, builtin_names
from regard.models.family import can
from regard.server.arguments import Arguments, Payload, integer_argument, text_argument
from regard.server.model_registry import ModelEntry
from regard.server.studio import Studio
from regard.server.training_jobs import MAX_EPOCHS, TrainingRequest, safe_file_name

MAX_CHARACTERS = 900_000  # of an uploaded file
STARTING_KINDS = ("reader", "writer", "unknown")  # kinds of models that can be fine-tuned
EXAMPLES = Path(__file__).with_name("messages.tsv")  # labeled messages that come with Regard
EXAMPLES_EPOCHS = "10"  # there are few examples


def train(studio: Studio, arguments: Arguments) -> Payload:
    """Start a job. Arguments: `task`, `path` or `content` with the `name` of its file, `model`, `output`, `epochs`,
    `limit`, `columns`; all are strings. `examples` "ours" uses the examples that come with Regard instead of a file."""
    ours = "examples" in arguments
    if ours:
        check_choice("examples", text_argument(arguments, "examples"), ["ours"])
        arguments = {"epochs": EXAMPLES_EPOCHS, **arguments, "task": "classify", "path": str(EXAMPLES), "columns": ""}
    task, output = text_argument(arguments, "task"), text_argument(arguments, "output", "").strip()
    from regard.tasks.registry import TASKS

    check_choice("task", task, TASKS)
    # Only local models: the studio downloads nothing.
    model = text_argument(arguments, "model", DEFAULT_MODEL)
    check_choice("model", model, {*studio.models.entries, *builtin_names()})
    if problem := _cannot_train(studio.models.entries.get(model) or ModelEntry(model)):
        raise InputError(f"{model} {problem}; start from a pretrained model, such as {DEFAULT_MODEL}")
    path, content = text_argument(arguments, "path", "").strip(), arguments.get("content", "")
    if not isinstance(content, str) or len(content) > MAX_CHARACTERS:
        raise InputError(
            f"the file is too large to send; the studio accepts {MAX_CHARACTERS:,} characters. Give its path instead: "
            f"put it into {studio.workspace.folder}, or restart with --data FILE"
        )
    if bool(path) is bool(content.strip()):
        raise InputError(
            f"expected labeled examples: the name of a file in {studio.workspace.folder}, or a file to send; one of "
            "them"
        )
    name = safe_file_name(path or text_argument(arguments, "name", "examples.tsv"), default="examples.tsv")
    upload_path = studio.workspace.folder / name
    request = TrainingRequest(
        task=task,
        data=str(EXAMPLES if ours else studio.workspace.readable(path) if path else upload_path),
        model=model,
        output=str(studio.workspace.output(output)) if output else "",
        epochs=integer_argument(arguments, "epochs", 3, most=MAX_EPOCHS),
        limit=integer_argument(arguments, "limit", 0, least=0),
        columns=text_argument(arguments, "columns", "").strip(),
        select="last" if ours else "best",  # six dev sentences cannot tell a good epoch from a lucky one
        upload=not path,
    )
    if path and not os.path.exists(request.data):
        raise InputError(f"{path}: no such file on this machine; expected a file of labeled examples")
    studio.training_jobs.check(request)  # before anything is written: a refused request leaves nothing behind
    if not path:
        studio.workspace.check_quota(len(content.encode("utf-8", "surrogatepass")))
    with ExitStack() as undo:
        if not path:
            request = replace(request, data=str(upload := _write_upload(upload_path, content)))
            undo.callback(upload.unlink)
        if not output:
            folder = _create_unused(upload_path.with_name(f"{name.split('.')[0]}-{task}"))
            request = replace(request, output=str(folder))
            undo.callback(folder.rmdir)
        studio.training_jobs.start(request, studio.models.add)
        undo.pop_all()
    return training(studio, {})


def training(studio: Studio, arguments: Arguments) -> Payload:
    """The progress of the job; null when there was none."""
    job = studio.training_jobs.job
    return {"training": None if job is None else job.to_dict()}


def cancel(studio: Studio, arguments: Arguments) -> Payload:
    """Stop the job."""
    studio.training_jobs.cancel()
    return training(studio, {})


def training_options(studio: Studio) -> Payload:
    """What the form of the page offers."""
    from regard.tasks.registry import TASKS

    entries = studio.models.entries.values()
    return {
        "tuned": [entry.name for entry in entries if entry.kind == "tuned"],
        "pretrained": [entry.name for entry in entries if not _cannot_train(entry)],
        "tasks": list(TASKS),
        "formats": {name: task.data_format for name, task in TASKS.items()},
        "ours": _describe_examples(),
        "folder": str(studio.workspace.folder),
        **training(studio, {}),
    }


def _cannot_train(entry: ModelEntry) -> str:
    """Why the model cannot be fine-tuned; "" when it can, as far as is known before it is loaded."""
    if entry.kind not in STARTING_KINDS:
        return "translates" if entry.kind == "translator" else "is tuned for a task already"
    if entry.loaded is None:
        return ""

    model = entry.loaded.model
    return "" if can(model, "fine-tuning") else f"is a {type(model).__name__}, which has no tasks"


def _describe_examples() -> dict[str, object]:
    labels = [line.rpartition("\t")[2] for line in EXAMPLES.read_text("utf-8").splitlines()]
    return {"examples": len(labels), "labels": sorted(set(labels))}


def _write_upload(path: Path, content: str) -> Path:
    """Write a file of that name, or with the next free number; concurrent uploads get different files."""
    unused = _create_unused(path, file=True)
    temporary = unused.with_name(f".{secrets.token_hex(8)}.part")
    try:
        temporary.write_text(content, encoding="utf-8", errors="surrogatepass")
        os.replace(temporary, unused)
    except BaseException:
        unused.unlink()
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return unused


def _create_unused(path: Path, *, file: bool = False) -> Path:
    """Create an empty folder or file at the path, or at the next one with a free number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, unused = 1, path
    while True:
        try:
            unused.touch(exist_ok=False) if file else unused.mkdir()
            return unused
        except FileExistsError:
            number += 1
            unused = path.with_name(f"{path.stem}-{number}{path.suffix}")
