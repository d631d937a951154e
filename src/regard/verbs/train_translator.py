"""`regard train translate`: train a translator on sentence pairs."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import TABLE_GROUP, Models, is_secondary, option, verb
from regard.verbs.tables import TableRequest, table_options
from regard.verbs.train import (
    RunRequest,
    Settings,
    assignments,
    epochs_option,
    limit_option,
    patience_option,
    settings_option,
)

if TYPE_CHECKING:
    from regard.training.recipes.translation.config import TranslationConfig
    from regard.training.recipes.translation.recipe import TranslationReport


class TrainTranslatorRequest(RunRequest, TableRequest):
    train: list[str] = option(
        help="Sentences and translations, line by line; or one table.", metavar="SRC TGT", variadic=True
    )
    dev: list[str] | None = option(
        None,
        help="Pairs to evaluate on, by BLEU. Default: a tenth of the pairs.",
        metavar="SRC TGT",
        variadic=True,
    )
    columns: list[str] | None = option(
        None, help="Columns of source and target, by name or index from 0.", metavar="1,0", group=TABLE_GROUP
    )
    settings: Settings = settings_option("training.num_epochs=20")
    limit: int | None = limit_option("pairs")
    epochs: int | None = epochs_option()
    early_stopping_patience: int | None = patience_option()
    hold_out: int = option(0, help="Hold out N pairs, and score them once at the end.", metavar="N", ge=0)
    model: str | None = option(
        None, "-m", help="A family with a translation recipe: transformer (default) or lstm.", metavar="NAME"
    )
    score: Literal["dot", "general", "additive", "none"] | None = option(
        None, help="lstm: attention score. Default: general."
    )
    recipe: Literal["luong", "deck"] | None = option(
        None, help="lstm: attention after the cell (luong, default) or before it (deck)."
    )


@verb(
    TrainTranslatorRequest,
    result="regard.training.recipes.translation.recipe:TranslationReport",
    http=False,
    command="train translate",
)
def train_translator(request: TrainTranslatorRequest, models: Models) -> Generator[Event, None, TranslationReport]:
    """Train a translator: a Transformer, or an LSTM with attention, evaluated by BLEU (sacrebleu) after each epoch.

    Files may be compressed: .gz, .xz, .bz2, .zst, or a .zip that holds one text. The best epoch is kept, or the average
    of the last epochs if it is better on dev. Sentences of held-out pairs, for --hold-out or in place of --dev, do not
    remain in the training data.
    """
    from regard.data.readers import TableOptions
    from regard.data.translation_pairs import read_translation_pairs, split_held_out
    from regard.training.recipes.translation.recipe import train_translator

    config = _load_config(request)
    files = [request.train, *([request.dev] if request.dev else [])]
    table = table_options(request)
    if not table.infers_format and all(len(some) > 1 for some in files):
        raise InputError("--columns and --delimiter are for a table, but only pairs of files are given; leave them out")
    plain = TableOptions(encoding=table.encoding, missing=table.missing)  # of two files
    learned, *judged = (read_translation_pairs(*some, table=table if len(some) == 1 else plain) for some in files)
    if request.limit is not None and request.limit < len(learned.examples):
        if not is_secondary():  # there is no run yet that would know it
            yield Note(message=f"{request.limit:,} of {len(learned.examples):,} pairs were sampled")
        learned = learned.sample(request.limit)
    train, dev, test = split_held_out(
        learned, judged[0] if judged else None, out=request.hold_out, seed=config.run.seed
    )
    return (yield from train_translator(train, dev, test=test, config=config, **request.run_options()))


def _load_config(request: TrainTranslatorRequest) -> TranslationConfig:
    from regard.models.family import translation_families
    from regard.training.recipes.translation.config import TranslationConfig

    given = {"family": request.model, "score": request.score, "recipe": request.recipe}
    options: dict[str, object] = {f"model.{key}": value for key, value in given.items()}
    options["training.num_epochs"] = request.epochs
    options["training.early_stopping_patience"] = request.early_stopping_patience
    config = TranslationConfig.read(request.config_file(), overrides=[*assignments(options), *request.settings])
    for name in ("score", "recipe"):  # options that have no effect on other models
        if given[name] is not None and not translation_families()[config.model.family].can("recurrent"):
            raise InputError(
                f"--{name} {given[name]} is for an LSTM, and the model to train is a {config.model.family}; add "
                f"--model lstm, or leave --{name} out"
            )
    return config
