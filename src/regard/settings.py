"""Settings in TOML: typed sections loaded from a file and the command line, validated, and written back."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.errors import InputError, InputErrors, suggest
from regard.files.durable_folder import describe_changes
from regard.files.file_input import read_file

Precision = Literal["auto", "bf16", "fp32"]

SettingsTables = dict[str, dict[str, object]]
CHECKSUM_PREFIX = "# SHA-256 of the lines below: "
MAX_BYTES = 1 << 20  # largest settings file

# Parts of pydantic's messages, and what to print instead.
REWORDED = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text in quotes",
    "a valid boolean": "true or false",
    "Field required": "expected more numbers",
}


class SettingsSection(BaseModel):
    """One table of the file. Validation is strict: a float is not accepted as an integer, nor "5" as a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SettingsFile(SettingsSection):
    """A settings file; every field is a section."""

    example: ClassVar[str]  # a setting to show in error messages
    changeable: ClassVar[frozenset[str]] = frozenset()  # settings that a resumed run may change

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        overrides: Sequence[str] = (),
        defaults: Mapping[str, Mapping[str, object]] | None = None,
        check: Callable[[SettingsTables, Mapping[str, str]], None] = lambda document, origins: None,
    ) -> Self:
        """Load settings from a file or the defaults, and apply overrides such as "optimizer.learning_rate=2e-3".

        Raises InputError that names the file or option at fault. `check` may raise its own; it is called with all
        settings and a map from each setting that was given to its origin.
        """
        document: SettingsTables = {name: {} for name in cls.model_fields}
        document |= {section: dict(table) for section, table in (defaults or {}).items()}
        origins: dict[str, str] = {}
        inputs = [(cls._read(Path(path)), str(path))] if path is not None else []
        inputs += [(cls._override(text), f"--set {text}") for text in overrides]
        for tables, origin in inputs:
            for section, table in tables.items():
                document[section] |= table
                origins |= {f"{section}.{key}": origin for key in table}
        check(document, origins)
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            all_origins = ", ".join(origin for _, origin in inputs)
            messages = dict.fromkeys(_message(detail, document, origins, all_origins) for detail in error.errors())
            raise InputErrors(messages) from None

    def toml(self) -> str:
        """Return the settings as TOML that `load` reads back."""
        return "\n".join(f"[{name}]\n{_table(getattr(self, name))}" for name in self.sections())

    def saved(self) -> bytes:
        """Return the settings file of a run: the SHA-256 for `check_saved_settings`, then the TOML."""
        text = self.toml().encode()
        return f"{CHECKSUM_PREFIX}{hashlib.sha256(text).hexdigest()}\n".encode() + text

    def saved_in(self, path: Path) -> Self:
        """The settings of a run of the same kind."""
        return type(self).load(path)

    def differences(self, other: Self) -> list[str]:
        """Describe each setting that differs in `other`: "optimizer.learning_rate was 0.001 and is 0.002".

        Settings that a resumed run may change do not count.
        """
        before, now = (
            {key: value for key, value in each._flat().items() if key not in self.changeable} for each in (self, other)
        )
        return describe_changes(before, now)

    def sections(self) -> list[str]:
        """Return the names of the sections to write."""
        return list(type(self).model_fields)

    def _flat(self) -> dict[str, object]:
        return {f"{name}.{key}": value for name in self.sections() for key, value in getattr(self, name)}

    @classmethod
    def _read(cls, path: Path) -> dict[str, Any]:
        try:
            tables = tomllib.loads(read_file(path, limit=MAX_BYTES).decode("utf-8"))
        except InputError:
            raise
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}; expected a TOML file of settings") from None
        except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, too many digits or brackets
            raise InputError(f"{path}: not valid TOML: {error}") from None
        cls._refuse_unknown(tables, str(path))
        return tables

    @classmethod
    def _override(cls, text: str) -> dict[str, Any]:
        """Parse "section.key=value" as a file would define it; quotes around strings are optional."""
        name, equals, literal = text.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot):
            raise InputError(f"--set {text}: expected SECTION.KEY=VALUE, like {cls.example}")
        try:
            tables = tomllib.loads(f"value = {'0' if literal.startswith('.') else ''}{literal}")  # TOML rejects .5
        except (ValueError, RecursionError):
            tables = {}
        value = tables["value"] if tables.keys() == {"value"} else literal.strip()
        cls._refuse_unknown({section: {key: value}}, f"--set {text}")
        if cls._fields(section)[key].annotation is str and not isinstance(value, str):
            value = literal.strip()  # schedule.budget=300 means the string "300"
        return {section: {key: value}}

    @classmethod
    def _fields(cls, section: str) -> Mapping[str, Any]:
        section_class = cls.model_fields[section].annotation
        assert isinstance(section_class, type) and issubclass(section_class, SettingsSection)
        return section_class.model_fields

    @classmethod
    def _refuse_unknown(cls, tables: Mapping[str, Any], origin: str) -> None:
        for section, table in tables.items():
            if section not in cls.model_fields:
                raise InputError(f"{origin}: unknown section {section!r}; {suggest(section, cls.model_fields)}")
            if not isinstance(table, dict):
                raise InputError(f"{origin}: {section} is {table!r}; expected a section [{section}] with keys")
            for key in table:
                if key not in (fields := cls._fields(section)):
                    raise InputError(f"{origin}: unknown key {key!r} in [{section}]; {suggest(key, fields)}")


def check_saved_settings(path: Path) -> None:
    """Raise InputError if the settings file of a run is damaged. Files of older runs have no checksum and pass."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; restore a copy of it") from None
    first, _, text = data.partition(b"\n")
    if first.startswith(CHECKSUM_PREFIX.encode()):
        intact = first.decode("ascii", "replace") == CHECKSUM_PREFIX + hashlib.sha256(text).hexdigest()
    else:
        intact = data.startswith(b"[") or b"\n[" in data  # a file truncated in its first line has no section
    if not intact:
        raise InputError(
            f"{path} is damaged: its content differs from what the run wrote. Restore a copy of it; if you changed it "
            "on purpose, delete its first line"
        )


def _message(detail: Any, document: Mapping[str, Any], origins: Mapping[str, str], all_origins: str) -> str:
    """Convert one of pydantic's error details to a message."""
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    for old, new in REWORDED.items():
        message = message.replace(old, new)
    if len(detail["loc"]) < 2:  # of settings that do not fit together
        return f"{all_origins}: {message}"
    section, key, *_ = detail["loc"]
    value = ":" if detail["type"] == "value_error" else f" is {document[section][key]!r};"
    return f"{origins[f'{section}.{key}']}: {section}.{key}{value} {message}"


def _table(section: SettingsSection) -> str:
    fields = type(section).model_fields
    return "".join(f"{key} = {toml_value(value)}  # {fields[key].description}\n" for key, value in section)


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):  # TOML strings are JSON strings, except for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_value(str(key))} = {toml_value(item)}' for key, item in value.items())}}}"
    return repr(value)
