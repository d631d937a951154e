"""The configuration of a pretraining run: a TOML file and single settings from the command line, checked as a whole.

Knows where each setting came from, to say so when it is wrong. Knows nothing of corpora, models or devices.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from regard.errors import InputError, nearest
from regard.pretrain.settings import Data, Family, Model, Objective, Optimizer, Run, Schedule, Section, Vocabulary
from regard.unfinished import changes

__all__ = ["Config"]

# Where a family's defaults are not those of BERT.
DEFAULTS: dict[Family, dict[str, dict[str, object]]] = {
    "bert": {},
    "gpt": {
        "model": {"activation": "gelu-tanh"},
        "vocabulary": {"kind": "bpe", "lowercase": False},
        "objective": {"pairs": "none"},
    },
}

WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text in quotes",
    "a valid boolean": "true or false",
    "Field required": "expected more numbers",
}


class Config(Section):
    """All settings of a run."""

    model: Model = Model()
    vocabulary: Vocabulary = Vocabulary()
    data: Data = Data()
    objective: Objective = Objective()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    run: Run = Run()

    @classmethod
    def read(
        cls, path: str | os.PathLike[str] | None = None, *, family: Family, overrides: Sequence[str] = ()
    ) -> Config:
        """The settings in a file, or the defaults, with single ones put in their place: "optimizer.rate=2e-3".

        InputError names the file or option that is at fault.
        """
        document: dict[str, dict[str, object]] = {name: {} for name in cls.model_fields}
        document |= {section: dict(table) for section, table in DEFAULTS[family].items()}
        origins: dict[str, str] = {}
        given = [(_read(Path(path)), str(path))] if path is not None else []
        given += [(_override(text), f"--set {text}") for text in overrides]
        for tables, origin in given:
            for section, table in tables.items():
                document[section] |= table
                origins |= {f"{section}.{key}": origin for key in table}
        _refuse_unfit(document, origins, family)
        document["model"]["family"] = family
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            whole = ", ".join(origin for _, origin in given)
            faults = dict.fromkeys(_fault(fault, document, origins, whole) for fault in error.errors())
            raise InputError("\n".join(faults)) from None

    def toml(self) -> str:
        """The text of a file that `read` makes the same configuration of."""
        sections = [f"[{name}]\n{_table(getattr(self, name))}" for name in self._sections()]
        return "\n".join(sections)

    def differences(self, other: Config) -> list[str]:
        """What `other` sets otherwise, in words: "optimizer.rate was 0.001 and is 0.002"."""
        return changes(self._flat(), other._flat())

    def _flat(self) -> dict[str, object]:
        return {f"{name}.{key}": value for name in self._sections() for key, value in getattr(self, name)}

    def _sections(self) -> list[str]:
        return [name for name in type(self).model_fields if not (name == "objective" and self.model.family == "gpt")]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model, data = self.model, self.data
        if model.width % model.heads:
            raise ValueError(f"model.heads is {model.heads}, which does not divide model.width, {model.width}")
        if data.length > model.positions:
            raise ValueError(
                f"data.length is {data.length}, and the model reads {model.positions} tokens; "
                "make data.length smaller or model.positions larger"
            )
        if data.batch < data.length:
            raise ValueError(f"data.batch is {data.batch} tokens: not one row of data.length, {data.length}")
        if data.micro and (data.batch % data.micro or data.micro < data.length):
            raise ValueError(
                f"data.micro is {data.micro}; expected a divisor of data.batch, {data.batch}, "
                f"that holds a row of {data.length} tokens"
            )
        if model.family == "bert" and self.vocabulary.kind == "bpe" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'bpe', which has no [MASK] for a BERT; use 'wordpiece'")
        return self


def _read(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a TOML file of settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no TOML: {error}") from None
    _refuse_unknown(tables, str(path))
    return tables


def _override(text: str) -> dict[str, Any]:
    """What a file would say for "section.key=value"; quotes around words may be left out."""
    name, equals, written = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot):
        raise InputError(f"--set {text}: expected SECTION.KEY=VALUE, like optimizer.rate=2e-3")
    try:
        tables = tomllib.loads(f"value = {'0' if written.startswith('.') else ''}{written}")  # .5, as people write it
    except tomllib.TOMLDecodeError:
        tables = {}
    value = tables["value"] if tables.keys() == {"value"} else written.strip()
    _refuse_unknown({section: {key: value}}, f"--set {text}")
    if _fields(section)[key].annotation is str and not isinstance(value, str):
        value = written.strip()  # schedule.budget=300 means the text "300"
    return {section: {key: value}}


def _fields(section: str) -> Mapping[str, Any]:
    kind = Config.model_fields[section].annotation
    assert isinstance(kind, type) and issubclass(kind, Section)
    return kind.model_fields


def _refuse_unknown(tables: Mapping[str, Any], origin: str) -> None:
    for section, table in tables.items():
        if section not in Config.model_fields:
            raise InputError(f"{origin}: unknown section {section!r}; {nearest(section, Config.model_fields)}")
        if not isinstance(table, dict):
            raise InputError(f"{origin}: {section} is {table!r}; expected a section [{section}] with keys of its own")
        for key in table:
            if key not in (fields := _fields(section)):
                raise InputError(f"{origin}: unknown key {key!r} in [{section}]; {nearest(key, fields)}")


def _refuse_unfit(document: Mapping[str, Mapping[str, object]], origins: Mapping[str, str], family: Family) -> None:
    """What another family is for: a setting that does nothing would be taken for one that does."""
    if (named := document["model"].get("family", family)) != family:
        raise InputError(f"{origins['model.family']}: model.family is {named!r}, and this trains a {family!r}")
    for key, origin in origins.items():
        if family == "gpt" and key.startswith("objective."):
            raise InputError(f"{origin}: {key} is for BERT; a GPT tells the next word of all its text, so remove it")


def _fault(fault: Any, document: Mapping[str, Any], origins: Mapping[str, str], whole: str) -> str:
    """A complaint of pydantic's in our words."""
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    for theirs, ours in WORDS.items():
        message = message.replace(theirs, ours)
    if not fault["loc"]:
        return f"{whole}: {message}"
    section, key, *_ = fault["loc"]
    given = ":" if fault["type"] == "value_error" else f" is {document[section][key]!r};"
    return f"{origins[f'{section}.{key}']}: {section}.{key}{given} {message}"


def _table(section: Section) -> str:
    fields = type(section).model_fields
    return "".join(f"{key} = {_value(value)}  # {fields[key].description}\n" for key, value in section)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):  # TOML's strings are JSON's, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
