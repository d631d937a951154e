"""`regard pretrain`: train a model from raw text."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.events import Event, Note
from regard.verbs.base import RUN_GROUP, Models, argument, option, verb
from regard.verbs.train import RunRequest, Settings, settings_option

if TYPE_CHECKING:
    from regard.training.recipes.pretraining.config import PretrainingConfig
    from regard.training.recipes.pretraining.recipe import PretrainingResult


class PretrainRequest(RunRequest):
    family: str = argument(help="A model family with a pretraining recipe, such as bert or gpt.")
    corpus: list[str] = option(
        ...,
        "-c",
        help="Text files, folders or globs, or folders that `regard corpus build` made; also s3://BUCKET/FOLDER. "
        "Repeatable. A blank line ends a document.",
        metavar="FILES",
        repeat=True,
    )
    settings: Settings = settings_option("optimizer.learning_rate=2e-3")
    heldout: list[str] = option(
        [], help="Text to evaluate on. Default: 1% of the corpus, held out.", metavar="FILES", repeat=True
    )
    budget: str | None = option(
        None, help="20min, 90s, 1h30m, with the preparation: the schedule ends with the budget.", metavar="TIME"
    )
    start: str = option("", help="Continue from this model's weights.", metavar="MODEL")
    verify: Literal["auto", "always"] = option(
        "auto", help="auto: hash corpus files that are new or have changed; always: all files."
    )
    cache_size: str = option(
        "16GiB", help="Disk space for the shards of a corpus on an object store.", metavar="SIZE", group=RUN_GROUP
    )


@verb(PretrainRequest, result="regard.training.recipes.pretraining.recipe:PretrainingResult", http=False)
def pretrain(request: PretrainRequest, models: Models) -> Generator[Event, None, PretrainingResult]:
    """Pretrain a BERT (masked tokens, next sentence), a GPT (next token), a T5 (dropped spans) or an ELMo (next and
    previous token, by LSTMs) on raw text.

    Without a tokenizer, one is trained on the text. On a CPU, model and batch are sized for the text and the time; what
    is set stays as it is. The run can be killed at any time: the same command with --resume continues it, with exactly
    the same result if its length is given in steps. Several GPUs or processes: torchrun --nproc-per-node N -m regard
    pretrain ...
    """
    from regard.device import choose_device
    from regard.files.file_input import parse_size
    from regard.training.recipes.pretraining.config import PretrainingConfig
    from regard.training.recipes.pretraining.run import pretrain

    # The budget replaces the one of the file, but not one of --set.
    budget = [] if request.budget is None else [f"schedule.budget={request.budget}", "schedule.max_steps=0"]
    overrides = [*budget, *request.settings]
    config = PretrainingConfig.read(request.config_file(), family=request.family, overrides=overrides)
    device = choose_device(request.device)
    if device.type == "cpu" and "WORLD_SIZE" not in os.environ:
        config = yield from _fit(config, request)
    return (
        yield from pretrain(
            config,
            request.corpus,
            held_out=request.heldout,
            start=request.start,
            verify=request.verify,
            cache_bytes=parse_size(request.cache_size),
            **request.run_options() | {"device": device},
        )
    )


def _fit(config: PretrainingConfig, request: PretrainRequest) -> Generator[Event, None, PretrainingConfig]:
    """The settings with defaults for this CPU, the text and the length; of a resumed run those that it had."""
    import torch

    from regard.training.recipes.pretraining.fit import describe_fit, fill, fit, text_bytes
    from regard.training.run_folder import saved_config

    if saved := saved_config(request.output, resume=request.resumes):
        before = type(config).read(saved, family=request.family)
        for section in before.sections():
            config = fill(config, section, **dict(getattr(before, section)))
        return config
    if not (config.schedule.budget or config.schedule.max_steps):
        return config  # which is refused
    if request.start:  # whose shape the settings describe
        config = config.model_copy(update={"model": config.model.model_copy(update=dict(config.model))})
    size, threads = text_bytes(request.corpus), torch.get_num_threads()
    fitted = fit(config, text=size, threads=threads)
    if line := describe_fit(config, fitted, text=size, threads=threads):
        yield Note(message=line)
    return fitted
