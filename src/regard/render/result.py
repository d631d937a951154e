"""`Result`: the base class of what verbs return. A result shows itself as text, JSON, a table, a page or a drawing."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr

from regard.errors import InputError
from regard.files.json_files import json_text
from regard.files.output_file import GENERATOR, replace_output

T = TypeVar("T")
Table = tuple[Sequence[str], Sequence[Sequence[object]]]  # headers and rows


class Result(BaseModel):
    """A typed answer. Its fields are the JSON document that `--json`, `.to_dict()` and `POST /v1/NAME` return.

    Subclasses define what else they offer: `to_text()` for the terminal, `to_table()` for pandas and CSV, `page_view`
    and `view_data()` for the interactive page, and for SVG and PNG, which show what the page does.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    page_view: ClassVar[str | None] = None  # the page's view that shows this result
    view_type: ClassVar[str | None] = None  # "module:Class", the pydantic model of `view_data()` if it is another
    _reproduce: dict[str, str] = PrivateAttr(default_factory=dict)  # "cli" and "python": the lines that repeat it
    _warnings: list[str] = PrivateAttr(default_factory=list)  # texts that the model cannot read
    _cut_notes: list[str] = PrivateAttr(default_factory=list)  # about texts of which only a part was read
    _interrupted: bool = PrivateAttr(False)  # the user stopped the verb; the result is what there was
    _quiet: bool = PrivateAttr(False)  # another process of the same run prints it

    @property
    def exit_code(self) -> int:
        """The exit code of the command that prints this result."""
        return 0

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values that JSON can hold."""
        return self.model_dump(mode="json")

    def to_python(self) -> Any:
        """What the verb's Python function returns: the result itself, unless a subclass has something better."""
        return self

    def to_json(self) -> str:
        """The result as one indented JSON document."""
        return json_text(self.document(), indent=2)

    def document(self) -> dict[str, Any]:
        """The JSON document; `warnings`, if there are any, name texts that the model cannot read."""
        return {**self.to_dict(), **({"warnings": self._warnings} if self._warnings else {})}

    def document_bytes(self) -> int:
        """About how large the JSON document is, if arrays can make it too large for a server; else 0."""
        return 0

    def to_text(self) -> str:
        """The result as the command line prints it."""
        return self.to_json()

    def to_table(self) -> Table | None:
        """Headers and rows, if the result is a table."""
        return None

    def view_data(self) -> Mapping[str, object]:
        """The data of the page's view, without the lines that reproduce it; by default the JSON document."""
        return self.to_dict()

    def page_data(self) -> dict[str, object]:
        """What the page needs: the view's name, its data and the lines that reproduce it."""
        if self.page_view is None:
            raise InputError(f"{type(self).__name__} has no page")
        data: dict[str, Any] = {"view": self.page_view, "notes": [], **self.view_data(), "cli": "", "python": ""}
        return {**data, "notes": [*data["notes"], *self._warnings], **self._reproduce}

    def drawing_data(self) -> Mapping[str, object]:
        """The data of the page that SVG and PNG show; by default that of the page itself."""
        return self.page_data()

    def with_warnings(self, warnings: Sequence[str], cut_notes: Sequence[str]) -> None:
        """Set what the doors say of texts that the model could not read, and of those that were cut."""
        self._warnings.extend(warnings)
        self._cut_notes.extend(cut_notes)

    def with_reproduction(self, cli: str, python: str) -> None:
        """Set the lines that repeat this result; called by the doors."""
        self._reproduce.update(cli=cli, python=python)

    def to_html(self) -> str:
        """A complete page with the interactive view; it needs no network."""
        from regard.render.bundle import page

        return page(self.page_data(), title=f"Regard: {self.page_view}")

    def to_pandas(self) -> Any:
        """The table as a DataFrame; needs pandas."""
        table = self.to_table()
        if table is None:
            raise InputError(f"{type(self).__name__} is not a table; use .to_dict()")
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise InputError("to_pandas() needs pandas: pip install pandas; .to_table() needs nothing") from None
        headers, rows = table
        return pandas.DataFrame([list(row) for row in rows], columns=list(headers))

    @classmethod
    def formats(cls) -> tuple[str, ...]:
        """The file name extensions that `save` writes for this kind of result."""
        return (
            *((".html", ".svg", ".png") if cls.page_view is not None else ()),
            *((".csv", ".jsonl") if cls.to_table is not Result.to_table else ()),
            ".json",
        )

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the result; the extension chooses the format. The file appears whole or not at all.

        A file that Regard did not write is replaced only with `force`.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in self.formats():
            raise InputError(f"{path}: expected a file name that ends in {', '.join(self.formats())}")
        with replace_output(path, force=force) as temporary:
            temporary.write_bytes(self._content(suffix))

    def _content(self, suffix: str) -> bytes:
        if suffix == ".html":
            return self.to_html().encode()
        if suffix == ".json":
            document = json_text({"generator": GENERATOR, **self.to_dict()}, indent=2)
            return (document + "\n").encode("utf-8", "backslashreplace")
        if suffix in (".csv", ".jsonl"):
            table = self.to_table()
            if table is None:
                raise InputError("this result is not a table; save it as .json")
            if suffix == ".jsonl":
                lines = [json_text(dict(zip(table[0], row, strict=True))) for row in table[1]]
                return "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")
            buffer = io.StringIO()
            csv.writer(buffer, lineterminator="\n").writerows([table[0], *table[1]])
            return buffer.getvalue().encode("utf-8", "backslashreplace")
        from regard.render.drawing import png, svg

        document = svg(self.drawing_data())
        return document.encode() if suffix == ".svg" else png(document)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        """The interactive view inside a notebook, offline and isolated; the text where there is no view."""
        try:
            document = self.to_html()
        except InputError:  # no view at all, or none of this result: a generation without candidates, for one
            return f"<pre>{html.escape(self.to_text())}</pre>"
        return (
            f'<iframe srcdoc="{html.escape(document)}" width="100%" height="640" title="Regard: {self.page_view}" '
            'style="border: 1px solid #d0d7de" sandbox="allow-scripts allow-downloads"></iframe>'
        )


def round_floats(value: T) -> T:
    """A JSON document with six significant digits: more than a page shows, in less than half the bytes."""
    rounded: Any = value
    if isinstance(value, float):
        rounded = float(f"{value:.6g}")
    elif isinstance(value, dict):
        rounded = {key: round_floats(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        rounded = [round_floats(item) for item in value]
    return cast(T, rounded)
