"""What the page can ask of tuned models: their predictions, and to train a new one.

Knows which of the studio's models are tuned, from which one can be trained, and the examples that come with Regard.
Knows nothing of HTTP.
"""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from regard.errors import InputError, choice
from regard.known import DEFAULT_MODEL, builtin_names
from regard.server.arguments import Arguments, Payload, counted, said
from regard.server.model_registry import ModelEntry, ModelRegistry
from regard.server.training_jobs import EPOCHS, TrainingJobs, TrainingRequest, safe_file_name

__all__ = ["cancel", "end_training", "tasks", "train", "training"]

CAN_TRAIN = ("classify", "tag", "answer", "pair", "regress", "choose")
ROOM = 900_000  # characters of a file that is sent along
STARTS = ("reader", "writer", "unknown")  # the kinds that a training may start from; one that is unknown tells itself
OURS = Path(__file__).with_name("messages.tsv")  # labelled by us: messages that thank, complain or ask
OURS_EPOCHS = "10"  # of so few examples

_trainings: WeakKeyDictionary[ModelRegistry, TrainingJobs] = WeakKeyDictionary()


def tasks(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, and `text_b` where the task reads two."""
    model = said(arguments, "model", DEFAULT_MODEL)
    text, second = said(arguments, "text"), said(arguments, "text_b", "")
    # The exported page has no server that could train.
    studio = {} if "place" in arguments else {"studio": _studio(registry)}
    entry = registry.entries.get(model)
    if entry is not None and entry.state != "failed" and entry.kind != "tuned":
        return {**_untuned(model), **studio}
    with registry.use_any(model):
        from regard.interpret.attribution.predictions import EXPECTED_INPUT, parse_example, predictions_payload

        solved = registry.solved(model)
        pictures = solved.tokenizer is None
        wanted = EXPECTED_INPUT.get("pictures" if pictures else solved.task.name, "")
        if pictures:
            text = str(registry.workspace.readable(text.strip()))
        if wanted and not (os.path.isfile(text) if pictures else second.strip()):
            return {**predictions_payload(model, solved, [], notes=[wanted]), **studio}
        return {**predictions_payload(model, solved, [parse_example(solved, text, second)]), **studio}


def train(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Begin to train. Arguments: `task`, `path` or `content` with its file's `name`, `model`, `output`, `epochs`,
    `limit`, `columns`; all are texts. With `examples` "ours", those that come with Regard instead of a file."""
    ours = "examples" in arguments
    if ours:
        choice("examples", said(arguments, "examples"), ["ours"])
        arguments = {"epochs": OURS_EPOCHS, **arguments, "task": "classify", "path": str(OURS), "columns": ""}
    task, output = said(arguments, "task"), said(arguments, "output", "").strip()
    choice("task", task, CAN_TRAIN)
    # One that would have to be fetched is none of the studio's: it asks no other machine.
    choice("model", model := said(arguments, "model", DEFAULT_MODEL), {*registry.entries, *builtin_names()})
    if why := _unfit(registry.entries.get(model) or ModelEntry(model)):
        raise InputError(
            f"{model} {why}; a model for a task is trained from one that reads or writes, such as {DEFAULT_MODEL}"
        )
    path, content = said(arguments, "path", "").strip(), arguments.get("content", "")
    if not isinstance(content, str) or len(content) > ROOM:
        raise InputError(
            f"the file is too large to send; the studio takes {ROOM:,} characters. Give its path instead: put it into "
            f"{registry.workspace.folder}, or restart with --data FILE"
        )
    if bool(path) is bool(content.strip()):
        raise InputError(
            f"expected labelled examples: the name of a file in {registry.workspace.folder}, or a file to send; one of "
            "them"
        )
    name = safe_file_name(path or said(arguments, "name", "examples.tsv"), otherwise="examples.tsv")
    place = registry.workspace.folder / name
    order = TrainingRequest(
        task=task,
        data=str(OURS if ours else registry.workspace.readable(path) if path else place),
        model=model,
        output=str(registry.workspace.output(output)) if output else "",
        epochs=counted(arguments, "epochs", 3, most=EPOCHS),
        limit=counted(arguments, "limit", 0, least=0),
        columns=said(arguments, "columns", "").strip(),
        select="last" if ours else "best",  # six sentences to judge by cannot tell a good epoch from a lucky one
        upload=not path,
    )
    if path and not os.path.exists(order.data):
        raise InputError(f"{path}: no such file on this machine; expected a file of labelled examples")
    manager = _manager(registry)
    manager.check(order)  # before anything is written: an order that is refused leaves nothing behind
    if not path:
        registry.workspace.check_room(len(content.encode("utf-8", "surrogatepass")))
    with ExitStack() as undo:
        if not path:
            order = replace(order, data=str(kept := _kept(place, content)))
            undo.callback(kept.unlink)
        if not output:
            order = replace(order, output=str(folder := _claimed(place.with_name(f"{name.split('.')[0]}-{task}"))))
            undo.callback(folder.rmdir)
        manager.start(order, registry.add)
        undo.pop_all()
    return training(registry, {})


def training(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """How far the training is; null where there was none."""
    job = _manager(registry).job
    return {"training": None if job is None else job.document()}


def cancel(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Stop the training."""
    _manager(registry).cancel()
    return training(registry, {})


def end_training(registry: ModelRegistry) -> None:
    """Stop the training, if there is one, and wait for it."""
    _manager(registry).end()


def _untuned(model: str) -> Payload:
    return {
        "view": "tasks",
        "model": None,
        "predictions": [],
        "notes": [f"{model} was pretrained and not tuned for a task: it has no classes, tags or answers to give."],
        "cli": "regard train classify --train FILE --output DIR",
        "python": "import regard\nregard.fit('classify', 'FILE', output='DIR')",
    }


def _studio(registry: ModelRegistry) -> Payload:
    entries = registry.entries.values()
    return {
        "tuned": [entry.name for entry in entries if entry.kind == "tuned"],
        "pretrained": [entry.name for entry in entries if not _unfit(entry)],
        "tasks": list(CAN_TRAIN),
        "ours": _ours(),
        "folder": str(registry.workspace.folder),
        **training(registry, {}),
    }


def _unfit(entry: ModelEntry) -> str:
    """Why no training can start from it; "" where one can, as far as is known before it is loaded."""
    if entry.kind not in STARTS:
        return "translates" if entry.kind == "translator" else "is tuned for a task already"
    if entry.loaded is None:
        return ""
    from regard.models import Bert, Elmo, Gpt, Vit

    model = entry.loaded[0]
    return "" if isinstance(model, Bert | Elmo | Gpt | Vit) else f"is a {type(model).__name__}, which has no tasks"


def _ours() -> dict[str, object]:
    """What there is to say of our examples."""
    labels = [line.rpartition("\t")[2] for line in OURS.read_text("utf-8").splitlines()]
    return {"examples": len(labels), "labels": sorted(set(labels))}


def _manager(registry: ModelRegistry) -> TrainingJobs:
    return _trainings.setdefault(registry, TrainingJobs())


def _kept(path: Path, content: str) -> Path:
    """A file of that name, or of the next one with a number that nothing has; two at once get two files."""
    free = _claimed(path, file=True)
    temporary = free.with_name(f".{secrets.token_hex(8)}.part")
    try:
        temporary.write_text(content, encoding="utf-8", errors="surrogatepass")
        os.replace(temporary, free)
    except BaseException:
        free.unlink()
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return free


def _claimed(path: Path, *, file: bool = False) -> Path:
    """The path, or the next one with a number that nothing has, taken by an empty folder or file that is made there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, free = 1, path
    while True:
        try:
            free.touch(exist_ok=False) if file else free.mkdir()
            return free
        except FileExistsError:
            number += 1
            free = path.with_name(f"{path.stem}-{number}{path.suffix}")
