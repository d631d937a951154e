"""`regard.fit`: fine-tune a model in Python by keyword; the training is that of `regard train`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Never

from regard.data.readers import RecordList, TableOptions
from regard.device import choose_device
from regard.errors import InputError, suggest
from regard.events import drain
from regard.settings import toml_value
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned
from regard.tasks.registry import get_task, task_for
from regard.tasks.task import LossFunction
from regard.training.distributed.world import num_processes
from regard.training.recipes.finetuning.config import FineTuningConfig, FineTuningSection
from regard.training.recipes.finetuning.run import fine_tune
from regard.training.stopping import Callback

Data = Any  # a DataFrame, a path, or a list of dictionaries or tuples such as (text, label)


def fit(
    data: Data,
    *others: Never,
    task: str = "classify",
    text: str | None = None,
    text_pair: str | None = None,
    label: str | Sequence[str] | None = None,
    dev: Data = None,
    split: str | None = None,
    limit: int | None = None,
    missing: Literal["error", "skip"] = "error",
    model: str | os.PathLike[str] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    max_length: int | None = None,
    frozen: bool | None = None,
    baseline: bool | None = None,
    early_stopping_patience: int | None = None,
    class_weights: Literal["balanced"] | Mapping[str, float] | None = None,
    loss: LossFunction | None = None,
    callbacks: Sequence[Callback] = (),
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    tensorboard: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    **settings: Any,
) -> FineTunedModel:
    """Fine-tune a model for a task, and return it with its `report`.

    Parameters
    ----------
    data : a DataFrame, a path, or a list of dictionaries or of tuples such as (text, label)
        The labeled examples.
    task : str
        classify, pair, regress, choose, tag or answer, as `regard train --help` lists them.
    text, text_pair, label : str
        The columns of the text, the second text of a pair, and the label; several labels are columns of 0 and 1. By
        default they are inferred from their names and values.
    dev : like data
        Examples to evaluate on after each epoch. Default: a tenth of the data.
    split : str
        "80/10/10" splits the data into train, dev and test.
    limit : int
        Train on a sample of at most so many examples.
    missing : "error" or "skip"
        Rows without a text or label are refused, or skipped and counted.
    model : str
        A model folder, a hub name or a built-in name. Default: regard-bert; regard-embed for at most 1,000 texts, for
        regress and with frozen=True.
    baseline : bool
        Unless False, a linear model on vectors of the texts is fitted too, and the better one is returned: `report`
        says which. The vectors are those of regard-embed, and of `model` if it is given.
    epochs, batch_size, learning_rate, max_length, frozen, early_stopping_patience
        Settings; what is not given has the default of the task.
    class_weights : "balanced" or a dictionary
        "balanced" weighs a class by n / (k * count), as scikit-learn does; or a weight for each label.
    loss : function
        Called with logits and targets in place of the task's loss; returns the loss to minimize. The shapes are
        (texts, classes) and (texts,); with several labels both are (texts, labels), for tag (words, tags) and (words,),
        for regress (texts,) and (texts,), for choose (texts, endings) and (texts,), for answer (2 x windows, tokens)
        and (2 x windows,), where the rows alternate between the first and the last token of the answer.
    callbacks : functions
        Called with every event (`regard.training.events`). One that returns True ends the training after the current
        epoch; the best epoch so far is kept.
    output : str
        Folder to write the model to. Without it nothing is kept on disk.
    resume : bool
        Continue the run in `output`, or start it.
    tensorboard : str
        Folder for TensorBoard.
    seed : int
        The same seed gives the same result.
    device : "auto", "cpu" or "cuda"
        Device to compute on.
    **settings
        Any other setting of the section [training] of a run's config.toml, such as warmup_ratio=0.06.
    """
    if others:
        raise TypeError(
            f"regard.fit takes the labeled examples as one argument, and {1 + len(others)} were given. Texts and their "
            "labels: regard.fit(list(zip(texts, labels))). Everything else has a name, such as epochs=3"
        )
    named = {
        "num_epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "frozen": frozen,
        "baseline": baseline,
        "early_stopping_patience": early_stopping_patience,
        "class_weights": class_weights,
    }
    _check_settings(settings, named)
    columns = _columns(task, text, text_pair, label)
    source = _source(data)
    kind = task_for(task, source) if isinstance(source, str | os.PathLike) else get_task(task)
    given = {key: value for key, value in {**named, **settings}.items() if value is not None}
    overrides = [f"run.seed={seed}", *(f"training.{key}={toml_value(value)}" for key, value in given.items())]
    if output is None and resume:
        raise InputError("resume=True continues the run in `output`, and there is none; name it")
    if output is None and num_processes() > 1:
        raise InputError("several processes train together in one folder; name it with `output`")
    with TemporaryDirectory(prefix="regard-fit-") as temporary:
        folder = Path(temporary, "run") if output is None else Path(output)
        events = fine_tune(
            task,
            source,
            None if dev is None else _source(dev),
            model=None if model is None else os.fspath(model),
            output=folder,
            config=FineTuningConfig.load(overrides=overrides, defaults={"training": kind.training_defaults}),
            table=TableOptions(columns=columns, missing=missing),
            split=split,
            limit=limit,
            resume=resume,
            loss=loss,
            callbacks=callbacks,
            tensorboard=tensorboard,
            device=device,
        )
        report = drain(events)
        found = load_fine_tuned(folder, device=choose_device(device))
        if output is None:
            return replace(found, report=report.model_copy(update={"output": ""}), folder=None)
        return replace(found, report=report)


def _check_settings(settings: Mapping[str, Any], named: Mapping[str, object]) -> None:
    others = [name for name in FineTuningSection.model_fields if name not in named]
    parameters = [name for name in fit.__annotations__ if name not in ("others", "settings", "return")]
    for name in settings:
        if name not in others:
            raise InputError(f"fit has no argument {name!r}; {suggest(name, [*parameters, *others])}")


def _columns(
    task: str, text: str | None, text_pair: str | None, label: str | Sequence[str] | None
) -> tuple[str, ...] | None:
    if text is None and text_pair is None and label is None:
        return None
    if text is None or label is None:
        given = {"text": text, "text_pair": text_pair, "label": label}
        missing = [name for name in ("text", "label") if given[name] is None]
        raise InputError(f"{' and '.join(missing)}: name this column too, or none of them to infer all")
    labels = (label,) if isinstance(label, str) else tuple(label)
    if task == "classify" and text_pair is not None:
        raise InputError('classify reads one text; for two texts use task="pair", or leave text_pair out')
    if task == "pair" and text_pair is None:
        raise InputError("pair reads two texts; name the column of the second with text_pair")
    return (text, *(() if text_pair is None else (text_pair,)), *labels)


def _source(data: Data) -> Any:
    return data if isinstance(data, str | os.PathLike) else RecordList.from_source(data)
