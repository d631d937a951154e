"""Defaults for pretraining on a CPU: a model, vocabulary and batch that fit the threads, the text and the time.

The fit depends on nothing that is measured: the same command on the same machine trains the same model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.data.corpus import Corpus
from regard.data.corpus.documents import find_sources
from regard.data.files import COMPRESSED_SUFFIXES
from regard.files.storage import file_identity
from regard.models.family import pretrainable_families
from regard.training.recipes.pretraining.config import DEFAULT_VOCAB_SIZE, PretrainingConfig
from regard.training.recipes.pretraining.corpus import are_corpora
from regard.training.recipes.pretraining.objectives import objective_class
from regard.training.settings import parse_budget
from regard.wording import count_of

THREAD_FLOPS = 25e9  # of a thread in training: less than most laptops reach, so that a step takes less than planned
STEP_SECONDS, MIN_STEPS = 1.0, 200  # the longest step, and steps that even a short run should have
SHAPES = ((384, 6), (256, 4), (128, 4), (128, 2))  # hidden size and layers, the largest first
TOKENS_PER_PARAMETER = 10  # that a run reads, at least, of the layers' parameters; there is a byte of text for each
BYTES_PER_ENTRY = 100  # of text, for an entry of the vocabulary
MIN_VOCABULARY = 4096  # holds the characters of any language
LENGTHS = (128, 64, 32, 16)
BYTES_PER_TOKEN = 4  # rather fewer
COMPRESSION = 4  # of text, about


def fit(config: PretrainingConfig, *, text: int, threads: int) -> PretrainingConfig:
    """Return the settings with values that fit for what was not given; `text` is the size of the text in bytes."""
    schedule = config.schedule
    seconds = parse_budget(schedule.budget) if schedule.budget else STEP_SECONDS * schedule.max_steps
    flops = threads * THREAD_FLOPS
    size = min(max(text // BYTES_PER_ENTRY, MIN_VOCABULARY), DEFAULT_VOCAB_SIZE)
    fitted = fill(config, "vocabulary", vocab_size=0 if config.vocabulary.path else size)
    fitted = _fit_length(fitted, text)
    if not {"name", "learning_rate"} & config.optimizer.model_fields_set:
        fitted = _fit_optimizer(fitted)
    vocabulary = fitted.vocabulary.vocab_size or DEFAULT_VOCAB_SIZE
    for hidden_size, layers in SHAPES:
        shaped = _with_shape(fitted, hidden_size, layers)
        tokens_per_second = flops / objective_class(shaped).flops_per_token(shaped, vocabulary)
        parameters = objective_class(shaped).flops_per_token(shaped, 0) / 6  # of the layers
        if parameters <= text and TOKENS_PER_PARAMETER * parameters <= seconds * tokens_per_second:
            break
    tokens = max(int(min(STEP_SECONDS, seconds / MIN_STEPS) * tokens_per_second), fitted.data.max_length)
    batch = min(1 << (tokens.bit_length() - 1), config.data.tokens_per_batch)
    micro = config.data.tokens_per_micro_batch or 1
    batch = math.ceil(max(batch, fitted.data.max_length) / micro) * micro
    return fill(shaped, "data", tokens_per_batch=batch)


def fill(config: PretrainingConfig, section: str, **values: object) -> PretrainingConfig:
    """Return the settings with the values of a section that were not given."""
    table = getattr(config, section)
    free = {key: value for key, value in values.items() if key not in table.model_fields_set}
    return config.model_copy(update={section: table.model_copy(update=free)})


def describe_fit(given: PretrainingConfig, fitted: PretrainingConfig, *, text: int, threads: int) -> str:
    """The values that `fit` chose, as settings; empty if all were given."""
    before, after = given.model_dump(), fitted.model_dump()
    changed = [
        f"{section}.{key}={value}"
        for section, table in after.items()
        for key, value in table.items()
        if value != before[section][key]
    ]
    if not changed:
        return ""
    length = given.schedule.budget or f"{count_of(given.schedule.max_steps, 'step')}"
    where = f"a CPU with {count_of(threads, 'thread')}, about {text / 1e6:.1f} MB of text and {length}"
    return f"settings for {where} (--set changes any):\n      {' '.join(changed)}"


def text_bytes(sources: Sequence[str]) -> int:
    """The size of text files or finished corpora; of compressed files an estimate."""
    if are_corpora(sources):
        corpora = (Corpus.open(source, verify="never") for source in sources)
        return sum(shard.counts.bytes for corpus in corpora for shard in corpus.manifest.shards or ())
    sizes = {file: file_identity(file).size for file in find_sources(sources).files}
    return sum(size * (COMPRESSION if str(file).endswith(COMPRESSED_SUFFIXES) else 1) for file, size in sizes.items())


def _fit_length(config: PretrainingConfig, text: int) -> PretrainingConfig:
    """Rows so short that the held-out hundredth of the text has some."""
    given, tokens = config.model.model_fields_set, text / 100 / BYTES_PER_TOKEN
    most = config.model.max_position_embeddings if "max_position_embeddings" in given else LENGTHS[0]
    length = next((length for length in LENGTHS if length <= most and 2 * length <= tokens), LENGTHS[-1])
    config = fill(config, "data", max_length=length)
    return fill(config, "model", max_position_embeddings=config.data.max_length)


def _with_shape(config: PretrainingConfig, hidden_size: int, layers: int) -> PretrainingConfig:
    given, model = config.model.model_fields_set, config.model
    recurrent = pretrainable_families()[model.family].can("recurrent")
    if recurrent and "intermediate_size" in given:  # cells, of which there are at least as many as outputs
        hidden_size = min(hidden_size, model.intermediate_size)
    elif "num_attention_heads" in given:  # a multiple of them
        hidden_size = model.num_attention_heads * max(round(hidden_size / model.num_attention_heads / 8) * 8, 8)
    config = fill(config, "model", hidden_size=hidden_size, num_hidden_layers=layers)
    width = config.model.hidden_size
    heads = math.gcd(width, max(width // 32, 1))
    return fill(config, "model", num_attention_heads=heads, intermediate_size=width if recurrent else 4 * width)


def _fit_optimizer(config: PretrainingConfig) -> PretrainingConfig:
    """Muon learns most in few steps; recurrent layers have no matrices for it."""
    if pretrainable_families()[config.model.family].can("recurrent"):
        return fill(config, "optimizer", learning_rate=5e-3)
    return fill(config, "optimizer", name="muon", learning_rate=2e-3)
