from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from regard.errors import InputError
from regard.models.family import pretrainable_families
from regard.training.recipes.pretraining.config import (
    ModelSection,
    ObjectiveSection,
    OptimizerSection,
    PretrainingConfig,
    PretrainingRunSection,
    ScheduleSection,
    VocabularySection,
)

CONFIGS = Path(__file__).resolve().parents[4] / "configs"
FAMILIES = list(pretrainable_families())


def write_config(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(*overrides: str, path: Path | None = None, family: str = "bert") -> str:
    with pytest.raises(InputError) as raised:
        PretrainingConfig.read(path, family=family, overrides=overrides)
    return str(raised.value)


def test_defaults_are_those_of_the_family() -> None:
    bert, gpt = PretrainingConfig.read(family="bert"), PretrainingConfig.read(family="gpt")
    assert bert == PretrainingConfig()
    assert (bert.model.family, bert.model.activation, bert.vocabulary.kind) == ("bert", "gelu", "wordpiece")
    assert (gpt.model.family, gpt.model.activation, gpt.vocabulary.kind) == ("gpt", "gelu-tanh", "bpe")
    assert (bert.vocabulary.lowercase, gpt.vocabulary.lowercase) == (True, False)
    assert (bert.objective.sentence_pairs, gpt.objective.sentence_pairs) == ("next", "none")


def test_options_override_the_file_which_overrides_the_defaults(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        '[model]\nhidden_size = 96\nnum_hidden_layers = 3\nactivation = "relu"\n[optimizer]\nlearning_rate = 1\n',
    )
    config = PretrainingConfig.read(
        path,
        family="gpt",
        overrides=["model.num_hidden_layers=4", "model.num_attention_heads=8", "model.num_attention_heads=4"],
    )
    assert (config.model.hidden_size, config.model.num_hidden_layers, config.model.num_attention_heads) == (96, 4, 4)
    assert (config.model.activation, config.optimizer.learning_rate, config.data.max_length) == ("relu", 1.0, 128)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optimizer.adam_betas=[0.5, 0.9]", (0.5, 0.9)),
        ("optimizer.name=muon", "muon"),
        ('optimizer.name="muon"', "muon"),
        ("optimizer.name = muon ", "muon"),
        ("objective.whole_word_mask=true", True),
        (" optimizer.learning_rate = 2e-3 ", 2e-3),
        ("vocabulary.path=", ""),
        ("vocabulary.path=a b=c", "a b=c"),
        ("vocabulary.path=2024", "2024"),
        ("vocabulary.path=2024-01-02", "2024-01-02"),
        ("schedule.budget=300", "300"),
        ("schedule.warmup_ratio=.25", 0.25),
        ("run.checkpoint_every=500 steps", "500 steps"),
        ("run.checkpoint_every=", ""),
    ],
)
def test_options_are_read_as_toml_or_as_plain_words(text: str, expected: object) -> None:
    section, key = text.partition("=")[0].strip().split(".")
    config = PretrainingConfig.read(family="bert", overrides=[text])
    assert getattr(getattr(config, section), key) == expected


def test_unknown_names_are_refused_with_a_suggestion_and_their_location(tmp_path: Path) -> None:
    path = write_config(tmp_path, "[optimiser]\nrate = 1e-3\n")
    assert refusal(path=path).startswith(f"{path}: unknown section 'optimiser'; did you mean 'optimizer'?")
    path = write_config(tmp_path, "[optimizer]\nlearning_rat = 1e-3\n")
    assert refusal(path=path).startswith(
        f"{path}: unknown key 'learning_rat' in [optimizer]; did you mean 'learning_rate'?"
    )
    assert refusal("model.hiden_size=3").startswith(
        "--set model.hiden_size=3: unknown key 'hiden_size' in [model]; did you mean"
    )
    assert refusal("modle.width=3").startswith("--set modle.width=3: unknown section 'modle'; did you mean 'model'?")
    assert "unknown key 'a.b' in [model]" in refusal("model.a.b=3")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("model.hidden_size=1.5", "model.hidden_size is 1.5; expected a whole number"),
        ("model.hidden_size=wide", "model.hidden_size is 'wide'; expected a whole number"),
        ("model.hidden_size=true", "model.hidden_size is True; expected a whole number"),
        ("model.hidden_size=1\nx=2", r"model.hidden_size is '1\nx=2'; expected a whole number"),
        ("model.hidden_size=0", "model.hidden_size is 0; expected greater than or equal to 1"),
        ("model.dropout=1", "model.dropout is 1; expected less than 1"),
        ("optimizer.learning_rate=fast", "optimizer.learning_rate is 'fast'; expected a number"),
        ("optimizer.learning_rate=nan", "optimizer.learning_rate is nan; expected a finite number"),
        ("optimizer.adam_betas=[0.9, 1.0]", "optimizer.adam_betas is [0.9, 1.0]; expected less than 1"),
        ("optimizer.adam_betas=[0.9, '1']", "optimizer.adam_betas is [0.9, '1']; expected a number"),
        ("optimizer.adam_betas=[]", "optimizer.adam_betas is []; expected more numbers"),
        (
            "objective.replacement_probabilities=[0.8, 0.1, 0.2]",
            "objective.replacement_probabilities: expected three probabilities whose sum is 1",
        ),
        ("objective.sentence_pairs=nxt", "objective.sentence_pairs is 'nxt'; expected 'next', 'order' or 'none'"),
        ("run.gradient_checkpointing=1", "run.gradient_checkpointing is 1; expected true or false"),
        ("schedule.budget=soon", "schedule.budget: 'soon' is not a duration; expected"),
        ("run.evaluate_every=soon", "run.evaluate_every: 'soon' is not an interval; expected"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(option: str, message: str) -> None:
    found = refusal(option)
    assert found.startswith(f"--set {option}: {message}")
    assert found.count("expected") == 1


def test_all_wrong_values_are_named_at_once(tmp_path: Path) -> None:
    path = write_config(tmp_path, '[model]\nhidden_size = "wide"\n[vocabulary]\npath = 3\n')
    size, vocabulary, limit = refusal("run.save_total_limit=0", path=path).splitlines()
    assert size.startswith(f"{path}: model.hidden_size is 'wide'") and "whole number" in size
    assert vocabulary.startswith(f"{path}: vocabulary.path is 3") and "text" in vocabulary
    assert limit.startswith("--set run.save_total_limit=0: ") and "is 0" in limit and limit.endswith(" 1")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("model.num_attention_heads=7", "model.num_attention_heads is 7, which does not divide model.hidden_size, 384"),
        ("data.max_length=513", "data.max_length is 513, and the model reads 512 tokens"),
        ("data.tokens_per_batch=127", "data.tokens_per_batch is 127: less than one row of data.max_length, 128"),
        (
            "data.tokens_per_micro_batch=1000",
            "data.tokens_per_micro_batch is 1000; expected a divisor of data.tokens_per_batch, 65536",
        ),
        (
            "data.tokens_per_micro_batch=64",
            "data.tokens_per_micro_batch is 64; expected a divisor of data.tokens_per_batch, 65536, that holds a ",
        ),
        ("vocabulary.kind=bpe", "vocabulary.kind is 'bpe', which has no [MASK] for a BERT"),
    ],
)
def test_conflicting_settings_are_refused(option: str, message: str) -> None:
    assert refusal(option).startswith(f"--set {option}: {message}")


def test_settings_at_the_limit_are_accepted() -> None:
    PretrainingConfig.read(
        family="bert", overrides=["data.max_length=512", "data.tokens_per_batch=512", "data.tokens_per_micro_batch=512"]
    )
    PretrainingConfig.read(family="bert", overrides=["vocabulary.kind=bpe", "vocabulary.path=somewhere"])


@pytest.mark.parametrize("text", ["model.hidden_size", "width=3", "", "=3", "model=3"])
def test_an_option_needs_a_section_a_key_and_a_value(text: str) -> None:
    assert refusal(text) == f"--set {text}: expected SECTION.KEY=VALUE, like optimizer.learning_rate=2e-3"


def test_an_invalid_file_is_refused(tmp_path: Path) -> None:
    assert "nowhere.toml: cannot be read: No such file" in refusal(path=tmp_path / "nowhere.toml")
    assert "cannot be read" in refusal(path=tmp_path)
    assert "not valid TOML: " in (found := refusal(path=write_config(tmp_path, "[model]\nhidden_size = = 3\n")))
    assert "line 2" in found
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "not valid TOML: " in refusal(path=tmp_path / "bytes.toml")
    path = write_config(tmp_path, "model = 3\n")
    assert refusal(path=path) == f"{path}: model is 3; expected a section [model] with keys"


def test_settings_of_another_family_are_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, '[model]\nfamily = "bert"\n')
    assert PretrainingConfig.read(path, family="bert").model.family == "bert"
    assert refusal(path=path, family="gpt") == f"{path}: model.family is 'bert', and this trains a 'gpt'"
    assert refusal("objective.mlm_probability=0.3", family="gpt").startswith(
        "--set objective.mlm_probability=0.3: objective.mlm_probability"
    )


@pytest.mark.parametrize(
    ("family", "option", "message"),
    [
        (
            "bert",
            "objective.mean_noise_span_length=4.0",
            "objective.mean_noise_span_length has no effect for a BERT; remove it",
        ),
        ("t5", "objective.sentence_pairs=next", "objective.sentence_pairs has no effect for a T5; remove it"),
        ("t5", "model.attention_dropout=0.1", "model.attention_dropout has no effect for a T5; remove it"),
        ("elmo", "model.num_attention_heads=2", "model.num_attention_heads has no effect for an ELMo; remove it"),
        (
            "elmo",
            "objective.mean_noise_span_length=3.0",
            "objective.mean_noise_span_length is for BERT; an ELMo predicts the next and the previous token",
        ),
        (
            "elmo",
            "model.intermediate_size=100",
            "model.intermediate_size is 100: an ELMo's LSTMs have at least as many cells as model.hidden_size, 384",
        ),
        ("elmo", "vocabulary.kind=bpe", "vocabulary.kind is 'bpe', which has no [CLS] and [SEP] for an ELMo"),
        ("t5", "vocabulary.kind=wordpiece", "vocabulary.kind is 'wordpiece', which has no sentinels for a T5"),
    ],
)
def test_settings_without_effect_are_refused(family: str, option: str, message: str) -> None:
    assert refusal(option, family=family).startswith(f"--set {option}: {message}")


@pytest.mark.parametrize("family", FAMILIES)
def test_written_settings_are_read_back(family: str, tmp_path: Path) -> None:
    options = [
        "model.dropout=0.1",
        "optimizer.adam_epsilon=1e-08",
        "optimizer.learning_rate=0.30000000000000004",
        "run.seed=123",
    ]
    options += ["run.gradient_checkpointing=true"]
    options += ["optimizer.adam_betas=[0.0, 0.999]", "schedule.budget=1h 30m"]
    config = PretrainingConfig.read(family=family, overrides=options)
    assert PretrainingConfig.read(write_config(tmp_path, config.toml()), family=family) == config
    assert ("[objective]" in config.toml()) == (family in ("bert", "t5", "electra"))


@given(
    path=st.text(st.characters(exclude_categories=["Cs"])),
    rate=st.floats(0, 10, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
)
@example(path='"\\\n\x00\x7f\u2028é😀', rate=1e-300, seed=0)
def test_any_value_survives_writing(path: str, rate: float, seed: int) -> None:
    config = PretrainingConfig(
        vocabulary=VocabularySection(path=path),
        optimizer=OptimizerSection(learning_rate=rate),
        run=PretrainingRunSection(seed=seed),
    )
    again = PretrainingConfig.model_validate(tomllib.loads(config.toml()))
    assert again == config


def test_written_settings_have_comments() -> None:
    lines = PretrainingConfig().toml().splitlines()
    assert any(re.match(r'name = "adamw"  # adamw, or muon for .* matrices', line) for line in lines)
    assert all(line.startswith("[") or "  # " in line for line in lines if line)
    assert not any(line.endswith("# None") for line in lines)


def test_differences_are_described() -> None:
    before = PretrainingConfig.read(family="bert")
    now = PretrainingConfig.read(
        family="bert",
        overrides=["optimizer.learning_rate=0.002", "objective.replacement_probabilities=[1.0, 0.0, 0.0]"],
    )
    assert before.differences(before) == []
    assert before.differences(now) == [
        "objective.replacement_probabilities was (0.8, 0.1, 0.1) and is (1.0, 0.0, 0.0)",
        "optimizer.learning_rate was 0.001 and is 0.002",
    ]


def test_a_configuration_cannot_be_changed_or_extended() -> None:
    with pytest.raises(ValidationError):
        PretrainingConfig().model.hidden_size = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        ModelSection(widht=3)  # type: ignore[call-arg]


def test_the_choices_are_those_of_the_code_behind_them() -> None:
    from regard.data.corpus.vocabulary import TokenizerType
    from regard.nn.block import ACTIVATIONS
    from regard.training.optimizer import OptimizerName
    from regard.training.settings import SchedulerType

    def choices(section: Any, key: str) -> set[str]:
        return set(get_args(section.model_fields[key].annotation))

    assert choices(ModelSection, "activation") == set(ACTIVATIONS)
    assert choices(VocabularySection, "kind") == set(get_args(TokenizerType))
    assert choices(OptimizerSection, "name") == set(get_args(OptimizerName))
    assert choices(ScheduleSection, "lr_scheduler_type") == set(get_args(SchedulerType))
    assert choices(ObjectiveSection, "sentence_pairs") == {"next", "order", "none"}


def test_reading_settings_does_not_import_torch() -> None:
    code = "import sys, regard.training.recipes.pretraining.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def pretrains(path: Path) -> bool:
    """Whether a configuration is for pretraining and not for translation."""
    return "data" in tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [*filter(pretrains, sorted(CONFIGS.glob("*.toml")))], ids=lambda path: path.stem)
def test_the_example_configurations(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    family: str = tomllib.loads(text)["model"]["family"]
    config = PretrainingConfig.read(path, family=family)
    assert [name for name in ("bert", "gpt", "t5", "elmo", "electra") if name in path.stem] == [family]
    assert bool(config.schedule.max_steps) != bool(config.schedule.budget)
    rows = (config.data.tokens_per_micro_batch or config.data.tokens_per_batch) / config.data.max_length
    assert rows.is_integer()
    assert text.startswith("# ")


def test_there_are_configurations() -> None:
    names = {path.stem for path in CONFIGS.glob("*.toml")}
    assert names >= {"bert-tiny", "bert-small-300s", "regard-bert", "bert-base", "gpt-tiny", "gpt2-small"}
    assert names >= {"t5-tiny", "elmo-tiny", "electra-tiny"}
