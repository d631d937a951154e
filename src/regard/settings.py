"""Settings as TOML: sections of typed keys from a file and the command line, checked as a whole and written back."""

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
from regard.files.file_input import read_file
from regard.files.folder_lock import describe_changes

__all__ = ["Precision", "SettingsFile", "SettingsSection", "SettingsTables", "check_saved_settings"]

Precision = Literal["auto", "bf16", "fp32"]

SettingsTables = dict[str, dict[str, object]]
SAVED = "# SHA-256 of the lines below: "

LIMIT = 1 << 20  # bytes of a file of settings

WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text in quotes",
    "a valid boolean": "true or false",
    "Field required": "expected more numbers",
}


class SettingsSection(BaseModel):
    """A table of the file. Nothing is converted: 0.5 is no whole number, and "5" is no number at all."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SettingsFile(SettingsSection):
    """A file of settings: every field is a section."""

    example: ClassVar[str]  # of a setting, for errors
    renamed: ClassVar[Mapping[str, str]] = {}  # "section.old_key" -> "new_key"

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        overrides: Sequence[str] = (),
        defaults: Mapping[str, Mapping[str, object]] | None = None,
        check: Callable[[SettingsTables, Mapping[str, str]], None] = lambda document, origins: None,
        saved: bool = False,
    ) -> Self:
        """The settings in a file, or the defaults, with single ones put in their place: "optimizer.learning_rate=2e-3".

        InputError names the file or option that is at fault. `check` may raise one of its own: it gets all that is set,
        and for each setting that was given where it came from. With `saved` the file is one that a run wrote: keys that
        have been renamed since are accepted.
        """
        document: SettingsTables = {name: {} for name in cls.model_fields}
        document |= {section: dict(table) for section, table in (defaults or {}).items()}
        origins: dict[str, str] = {}
        given = [(cls._read(Path(path), saved=saved), str(path))] if path is not None else []
        given += [(cls._override(text), f"--set {text}") for text in overrides]
        for tables, origin in given:
            for section, table in tables.items():
                document[section] |= table
                origins |= {f"{section}.{key}": origin for key in table}
        check(document, origins)
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            whole = ", ".join(origin for _, origin in given)
            faults = dict.fromkeys(_fault(fault, document, origins, whole) for fault in error.errors())
            raise InputErrors(faults) from None

    def toml(self) -> str:
        """The text of a file that `load` makes the same settings of."""
        return "\n".join(f"[{name}]\n{_table(getattr(self, name))}" for name in self.sections())

    def saved(self) -> bytes:
        """The file that a run keeps of its settings: their text behind a line with its SHA-256, for `check_saved`."""
        text = self.toml().encode()
        return f"{SAVED}{hashlib.sha256(text).hexdigest()}\n".encode() + text

    def differences(self, other: Self) -> list[str]:
        """What `other` sets otherwise, in words: "optimizer.learning_rate was 0.001 and is 0.002"."""
        return describe_changes(self._flat(), other._flat())

    def sections(self) -> list[str]:
        """Those that are written."""
        return list(type(self).model_fields)

    def _flat(self) -> dict[str, object]:
        return {f"{name}.{key}": value for name in self.sections() for key, value in getattr(self, name)}

    @classmethod
    def _read(cls, path: Path, *, saved: bool) -> dict[str, Any]:
        try:
            tables = tomllib.loads(read_file(path, limit=LIMIT).decode("utf-8"))
        except InputError:
            raise
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}; expected a TOML file of settings") from None
        except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, too many digits or brackets
            raise InputError(f"{path}: is no TOML: {error}") from None
        if saved:
            tables = {name: cls.with_new_keys(name, t) if isinstance(t, dict) else t for name, t in tables.items()}
        cls._refuse_unknown(tables, str(path))
        return tables

    @classmethod
    def with_new_keys(cls, section: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """A section as an earlier version saved it, with the keys' present names."""
        return {cls.renamed.get(f"{section}.{key}", key): value for key, value in table.items()}

    @classmethod
    def _override(cls, text: str) -> dict[str, Any]:
        """What a file would say for "section.key=value"; quotes around words may be left out."""
        name, equals, written = text.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot):
            raise InputError(f"--set {text}: expected SECTION.KEY=VALUE, like {cls.example}")
        try:
            tables = tomllib.loads(f"value = {'0' if written.startswith('.') else ''}{written}")  # .5, as people write
        except (ValueError, RecursionError):
            tables = {}
        value = tables["value"] if tables.keys() == {"value"} else written.strip()
        cls._refuse_unknown({section: {key: value}}, f"--set {text}")
        if cls._fields(section)[key].annotation is str and not isinstance(value, str):
            value = written.strip()  # schedule.budget=300 means the text "300"
        return {section: {key: value}}

    @classmethod
    def _fields(cls, section: str) -> Mapping[str, Any]:
        kind = cls.model_fields[section].annotation
        assert isinstance(kind, type) and issubclass(kind, SettingsSection)
        return kind.model_fields

    @classmethod
    def _refuse_unknown(cls, tables: Mapping[str, Any], origin: str) -> None:
        for section, table in tables.items():
            if section not in cls.model_fields:
                raise InputError(f"{origin}: unknown section {section!r}; {suggest(section, cls.model_fields)}")
            if not isinstance(table, dict):
                raise InputError(
                    f"{origin}: {section} is {table!r}; expected a section [{section}] with keys of its own"
                )
            for key in table:
                if key not in (fields := cls._fields(section)):
                    if (new := cls.renamed.get(f"{section}.{key}")) in fields:
                        raise InputError(f"{origin}: {section}.{key} is now called {section}.{new}; use that name")
                    raise InputError(f"{origin}: unknown key {key!r} in [{section}]; {suggest(key, fields)}")


def check_saved_settings(path: Path) -> None:
    """InputError where the settings that a run keeps are damaged; those of older runs have no checksum and pass."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; put a copy of it back") from None
    first, _, text = data.partition(b"\n")
    if first.startswith(SAVED.encode()):
        whole = first.decode("ascii", "replace") == SAVED + hashlib.sha256(text).hexdigest()
    else:
        whole = data.startswith(b"[") or b"\n[" in data  # one that was cut short in its first line has no section
    if not whole:
        raise InputError(
            f"{path} is damaged: it is not what the run wrote. Put a copy of it back; if you changed it on purpose, "
            "delete its first line"
        )


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


def _table(section: SettingsSection) -> str:
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
