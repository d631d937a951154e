from __future__ import annotations

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
from regard.training.pretraining.config import Config
from regard.training.pretraining.sections import Family, Model, Objective, Optimizer, Run, Schedule, Vocabulary

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
FAMILIES: tuple[Family, ...] = get_args(Family)


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(*overrides: str, path: Path | None = None, family: Family = "bert") -> str:
    with pytest.raises(InputError) as raised:
        Config.read(path, family=family, overrides=overrides)
    return str(raised.value)


def test_defaults_are_those_of_the_family() -> None:
    bert, gpt = Config.read(family="bert"), Config.read(family="gpt")
    assert bert == Config()
    assert (bert.model.family, bert.model.activation, bert.vocabulary.kind) == ("bert", "gelu", "wordpiece")
    assert (gpt.model.family, gpt.model.activation, gpt.vocabulary.kind) == ("gpt", "gelu-tanh", "bpe")
    assert (bert.vocabulary.lowercase, gpt.vocabulary.lowercase) == (True, False)
    assert (bert.objective.pairs, gpt.objective.pairs) == ("next", "none")


def test_an_option_beats_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, '[model]\nwidth = 96\ndepth = 3\nactivation = "relu"\n[optimizer]\nrate = 1\n')
    config = Config.read(path, family="gpt", overrides=["model.depth=4", "model.heads=8", "model.heads=4"])
    assert (config.model.width, config.model.depth, config.model.heads) == (96, 4, 4)
    assert (config.model.activation, config.optimizer.rate, config.data.length) == ("relu", 1.0, 128)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optimizer.betas=[0.5, 0.9]", (0.5, 0.9)),
        ("optimizer.name=muon", "muon"),
        ('optimizer.name="muon"', "muon"),
        ("optimizer.name = muon ", "muon"),
        ("objective.whole_words=true", True),
        (" optimizer.rate = 2e-3 ", 2e-3),
        ("vocabulary.path=", ""),
        ("vocabulary.path=a b=c", "a b=c"),
        ("vocabulary.path=2024", "2024"),
        ("vocabulary.path=2024-01-02", "2024-01-02"),
        ("schedule.budget=300", "300"),
        ("schedule.warmup=.25", 0.25),
        ("run.checkpoint_every=500 steps", "500 steps"),
        ("run.checkpoint_every=", ""),
    ],
)
def test_options_are_read_as_toml_or_as_plain_words(text: str, expected: object) -> None:
    section, key = text.partition("=")[0].strip().split(".")
    config = Config.read(family="bert", overrides=[text])
    assert getattr(getattr(config, section), key) == expected


def test_unknown_names_are_refused_with_the_nearest_and_where_they_stand(tmp_path: Path) -> None:
    path = written(tmp_path, "[optimiser]\nrate = 1e-3\n")
    assert refusal(path=path).startswith(f"{path}: unknown section 'optimiser'; did you mean 'optimizer'?")
    path = written(tmp_path, "[optimizer]\nrat = 1e-3\n")
    assert refusal(path=path).startswith(f"{path}: unknown key 'rat' in [optimizer]; did you mean 'rate'?")
    assert refusal("model.widht=3").startswith("--set model.widht=3: unknown key 'widht' in [model]; did you mean")
    assert refusal("modle.width=3").startswith("--set modle.width=3: unknown section 'modle'; did you mean 'model'?")
    assert "unknown key 'a.b' in [model]" in refusal("model.a.b=3")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("model.width=1.5", "model.width is 1.5; expected a whole number"),
        ("model.width=wide", "model.width is 'wide'; expected a whole number"),
        ("model.width=true", "model.width is True; expected a whole number"),
        ("model.width=1\nx=2", r"model.width is '1\nx=2'; expected a whole number"),
        ("model.width=0", "model.width is 0; expected greater than or equal to 1"),
        ("model.dropout=1", "model.dropout is 1; expected less than 1"),
        ("optimizer.rate=fast", "optimizer.rate is 'fast'; expected a number"),
        ("optimizer.rate=nan", "optimizer.rate is nan; expected a finite number"),
        ("optimizer.betas=[0.9, 1.0]", "optimizer.betas is [0.9, 1.0]; expected less than 1"),
        ("optimizer.betas=[0.9, '1']", "optimizer.betas is [0.9, '1']; expected a number"),
        ("optimizer.betas=[]", "optimizer.betas is []; expected more numbers"),
        ("objective.replace=[0.8, 0.1, 0.2]", "objective.replace: expected three shares whose sum is 1"),
        ("objective.pairs=nxt", "objective.pairs is 'nxt'; expected 'next', 'order' or 'none'"),
        ("run.gradient_checkpointing=1", "run.gradient_checkpointing is 1; expected true or false"),
        ("schedule.budget=soon", "schedule.budget: 'soon' is no duration; expected"),
        ("run.evaluate_every=soon", "run.evaluate_every: 'soon' is no interval; expected"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(option: str, message: str) -> None:
    found = refusal(option)
    assert found.startswith(f"--set {option}: {message}")
    assert found.count("expected") == 1


def test_all_wrong_values_are_named_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, '[model]\nwidth = "wide"\n[vocabulary]\npath = 3\n')
    assert refusal("run.keep=0", path=path).splitlines() == [
        f"{path}: model.width is 'wide'; expected a whole number",
        f"{path}: vocabulary.path is 3; expected a text in quotes",
        "--set run.keep=0: run.keep is 0; expected greater than or equal to 1",
    ]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("model.heads=7", "model.heads is 7, which does not divide model.width, 384"),
        ("data.length=513", "data.length is 513, and the model reads 512 tokens"),
        ("data.batch=127", "data.batch is 127 tokens: not one row of data.length, 128"),
        ("data.micro=1000", "data.micro is 1000; expected a divisor of data.batch, 65536"),
        ("data.micro=64", "data.micro is 64; expected a divisor of data.batch, 65536, that holds a row of 128"),
        ("vocabulary.kind=bpe", "vocabulary.kind is 'bpe', which has no [MASK] for a BERT"),
    ],
)
def test_what_does_not_fit_together_is_refused(option: str, message: str) -> None:
    assert refusal(option).startswith(f"--set {option}: {message}")


def test_what_just_fits_together_is_taken() -> None:
    Config.read(family="bert", overrides=["data.length=512", "data.batch=512", "data.micro=512"])
    Config.read(family="bert", overrides=["vocabulary.kind=bpe", "vocabulary.path=somewhere"])


@pytest.mark.parametrize("text", ["model.width", "width=3", "", "=3", "model=3"])
def test_an_option_needs_a_section_a_key_and_a_value(text: str) -> None:
    assert refusal(text) == f"--set {text}: expected SECTION.KEY=VALUE, like optimizer.rate=2e-3"


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "nowhere.toml: cannot be read: No such file" in refusal(path=tmp_path / "nowhere.toml")
    assert "cannot be read" in refusal(path=tmp_path)
    assert "is no TOML: " in (found := refusal(path=written(tmp_path, "[model]\nwidth = = 3\n")))
    assert "line 2" in found
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "is no TOML: " in refusal(path=tmp_path / "bytes.toml")
    path = written(tmp_path, "model = 3\n")
    assert refusal(path=path) == f"{path}: model is 3; expected a section [model] with keys of its own"


def test_settings_of_another_family_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, '[model]\nfamily = "bert"\n')
    assert Config.read(path, family="bert").model.family == "bert"
    assert refusal(path=path, family="gpt") == f"{path}: model.family is 'bert', and this trains a 'gpt'"
    assert refusal("objective.mask_rate=0.3", family="gpt").startswith("--set objective.mask_rate=0.3: objective.mask")


@pytest.mark.parametrize(
    ("family", "option", "message"),
    [
        ("bert", "objective.span=4.0", "objective.span does nothing for a BERT; remove it"),
        ("t5", "objective.pairs=next", "objective.pairs does nothing for a T5; remove it"),
        ("t5", "model.attention_dropout=0.1", "model.attention_dropout does nothing for a T5; remove it"),
        ("elmo", "model.heads=2", "model.heads does nothing for an ELMo; remove it"),
        ("elmo", "objective.span=3.0", "objective.span is for BERT; an ELMo tells the next word and the one before"),
        ("elmo", "run.gradient_checkpointing=true", "run.gradient_checkpointing does nothing for an ELMo; remove it"),
        ("elmo", "model.ffn=100", "model.ffn is 100: an ELMo's LSTMs have at least as many cells as model.width, 384"),
        ("elmo", "vocabulary.kind=bpe", "vocabulary.kind is 'bpe', which has no [CLS] and [SEP] for an ELMo"),
        ("t5", "vocabulary.kind=wordpiece", "vocabulary.kind is 'wordpiece', which has no sentinels for a T5"),
    ],
)
def test_what_does_nothing_for_a_family_is_refused(family: Family, option: str, message: str) -> None:
    assert refusal(option, family=family).startswith(f"--set {option}: {message}")


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_is_read_again(family: Family, tmp_path: Path) -> None:
    options = ["model.dropout=0.1", "optimizer.eps=1e-08", "optimizer.rate=0.30000000000000004", "run.seed=123"]
    options += [] if family == "elmo" else ["run.gradient_checkpointing=true"]
    options += ["optimizer.betas=[0.0, 0.999]", "schedule.budget=1h 30m"]
    config = Config.read(family=family, overrides=options)
    assert Config.read(written(tmp_path, config.toml()), family=family) == config
    assert ("[objective]" in config.toml()) == (family in ("bert", "t5"))


@given(
    path=st.text(st.characters(exclude_categories=["Cs"])),
    rate=st.floats(0, 10, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
)
@example(path='"\\\n\x00\x7f\u2028é😀', rate=1e-300, seed=0)
def test_any_value_survives_writing(path: str, rate: float, seed: int) -> None:
    config = Config(vocabulary=Vocabulary(path=path), optimizer=Optimizer(rate=rate), run=Run(seed=seed))
    again = Config.model_validate(tomllib.loads(config.toml()))
    assert again == config


def test_what_is_written_explains_itself() -> None:
    lines = Config().toml().splitlines()
    assert 'name = "adamw"  # adamw, or muon for the matrices inside layers' in lines
    assert all(line.startswith("[") or "  # " in line for line in lines if line)
    assert not any(line.endswith("# None") for line in lines)


def test_differences_are_told_in_words() -> None:
    before = Config.read(family="bert")
    now = Config.read(family="bert", overrides=["optimizer.rate=0.002", "objective.replace=[1.0, 0.0, 0.0]"])
    assert before.differences(before) == []
    assert before.differences(now) == [
        "objective.replace was (0.8, 0.1, 0.1) and is (1.0, 0.0, 0.0)",
        "optimizer.rate was 0.001 and is 0.002",
    ]


def test_a_configuration_cannot_be_changed_or_extended() -> None:
    with pytest.raises(ValidationError):
        Config().model.width = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Model(widht=3)  # type: ignore[call-arg]


def test_the_choices_are_those_of_the_code_behind_them() -> None:
    from regard.data.corpus.vocabulary import Kind
    from regard.nn.block import ACTIVATIONS
    from regard.training.optimizer import Name
    from regard.training.schedule import Shape

    def choices(section: Any, key: str) -> set[str]:
        return set(get_args(section.model_fields[key].annotation))

    assert choices(Model, "activation") == set(ACTIVATIONS)
    assert choices(Vocabulary, "kind") == set(get_args(Kind))
    assert choices(Optimizer, "name") == set(get_args(Name))
    assert choices(Schedule, "shape") == set(get_args(Shape)) - {"noam"}  # which is for translation
    assert choices(Objective, "pairs") == {"next", "order", "none"}


def test_reading_settings_does_not_import_torch() -> None:
    code = "import sys, regard.training.pretraining.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def pretrains(path: Path) -> bool:
    """Others are for translation."""
    return "family" in tomllib.loads(path.read_text(encoding="utf-8"))["model"]


@pytest.mark.parametrize("path", [*filter(pretrains, sorted(CONFIGS.glob("*.toml")))], ids=lambda path: path.stem)
def test_the_configurations_that_come_along(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    family: Family = tomllib.loads(text)["model"]["family"]
    config = Config.read(path, family=family)
    assert [name for name in ("bert", "gpt", "t5", "elmo") if name in path.stem] == [family]
    assert bool(config.schedule.steps) != bool(config.schedule.budget)
    rows = (config.data.micro or config.data.batch) / config.data.length
    assert rows.is_integer()
    assert text.startswith("# ")


def test_there_are_configurations() -> None:
    names = {path.stem for path in CONFIGS.glob("*.toml")}
    assert names >= {"bert-tiny", "bert-small-300s", "regard-bert", "bert-base", "gpt-tiny", "gpt2-small"}
    assert names >= {"t5-tiny", "elmo-tiny"}
