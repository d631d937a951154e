"""Reads multiple-choice examples: HellaSwag's JSON lines, SWAG's CSV, and text with six lines per example.

Examples have two or more endings; in the six-line format four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from regard.data.examples import ChoiceExample
from regard.data.files import content_suffix, display_name
from regard.data.readers.memory import refuse_repeated
from regard.data.readers.records import (
    ExampleSet,
    MissingValue,
    Path,
    Record,
    Records,
    keep_missing,
    kind_of,
    open_records,
    string_at,
    strings_at,
)
from regard.data.readers.tables import INFERRED, Missing, Table, TableOptions, column_at, rows_of, table_of
from regard.errors import InputError
from regard.wording import is_count

_LINES = 6  # the text, the number of the correct ending, four endings
REMEDY = "name the text, the endings and the label with --columns"


def read_choice_examples(
    path: Path, options: TableOptions = INFERRED, *, labeled: bool | None = None, remedy: str = REMEDY
) -> ExampleSet[ChoiceExample]:
    """Read JSON lines or CSV with `ctx` and `endings`, or `sent1`, `sent2`, `ending0`... (SWAG), and `label`.

    Other files have six lines per example: the text, the number of the correct ending from 0, and four endings.
    HellaSwag's text is `ctx` alone; the six-line files put the activity before it. The options may name other columns:
    the text, the endings (one list, or each on its own), then the label, which is omitted if `labeled` is False.
    `missing` "skip" leaves out records without a text or label and counts them. `remedy` ends the error for a file
    without endings.
    """
    name, columns = display_name(path), options.columns
    records, lines = open_records(path, is_table=options.delimiter is not None, encoding=options.encoding)
    is_table = not replace(options, columns=None).infers_format
    if records is None and (content_suffix(path) in (".csv", ".tsv") or "ending0" in lines[0] or is_table):
        delimiter = options.delimiter or ("\t" if content_suffix(path) == ".tsv" else ",")
        table = table_of(lines, path, replace(options, delimiter=delimiter))
        rows = _swag_rows(table, remedy) if columns is None else rows_of(table, columns, header=options.header)
        records = Records(name, rows, "SWAG table" if columns is None else table.description)
    if records is not None:
        return _from_records(records, labeled, columns, remedy, options.missing)
    if columns is not None:
        raise InputError(
            f"{name}: the format with six lines per example has no columns; leave out --columns, or give --delimiter "
            "if the file is a table"
        )
    return _six_lines(lines, name, labeled)


def _rename_columns(record: Record, columns: Sequence[str], where: str, *, labeled: bool | None) -> Record:
    """Return the given columns under the keys text, endings and label."""
    text, *rest = columns
    values = {name: column_at(record, name, where) for name in columns}
    if rest and isinstance(values[rest[0]], list):
        endings, label = values[rest[0]], rest[1:]
    else:
        ending_columns, label = (rest, []) if labeled is False else (rest[:-1], rest[-1:])
        endings = [string_at(record, name, where) for name in ending_columns]
    if not rest or len(label) > 1 or (labeled and not label):
        expected = "text, endings (one list, or each on its own)" + ("" if labeled is False else ", label")
        raise InputError(f"--columns for choose should be {expected}; got {', '.join(columns)}")
    return {"text": values[text], "endings": endings, "label": values[label[0]] if label else None}


def _swag_rows(table: Table, remedy: str) -> Iterator[tuple[int, Record]]:
    names = [str(cell).strip() for cell in table.rows[0]]
    refuse_repeated(names, table.name)
    if "ending0" not in names:
        raise InputError(
            f"{table.location(0)}: expected a header with sent1, sent2, ending0, ending1 and so on, "
            f"got {', '.join(names)[:80]}; {remedy}"
        )
    for row in range(1, len(table.rows)):
        cells = table.rows[row]
        if len(cells) != len(names):
            raise InputError(f"{table.location(row)}: expected {len(names)} columns, got {len(cells)}; fix the row")
        yield table.lines[row], dict(zip(names, cells, strict=True))


def _from_records(
    records: Records, labeled: bool | None, columns: Sequence[str] | None, remedy: str, missing: Missing | None
) -> ExampleSet[ChoiceExample]:
    examples, lines, swag = [], [], False
    dropped: Counter[str] = Counter()
    for number, record in records.numbered:
        where = f"{records.name} {records.unit} {number}"
        swag = "ending0" in record and columns is None
        try:
            record = record if columns is None else _rename_columns(record, columns, where, labeled=labeled)
            endings = _endings(record, where, remedy)
            label = None if labeled is False else _label(record.get("label"), len(endings), where)
            if labeled and label is None:
                raise MissingValue(f"{where}: no label; expected a number from 0 to {len(endings) - 1}")
            examples.append(ChoiceExample(_text(record, where), endings, label))
            lines.append(number)
        except MissingValue as error:
            keep_missing(missing, error, dropped)
    text = "text = sent1 + sent2" if swag else f"text = {columns[0] if columns else 'ctx'}"
    description = f"{records.description}, {text}, {_ending_counts(examples)}"
    return ExampleSet(examples, records.name, description, dict(dropped), lines, records.unit)


def _text(record: Record, where: str) -> str:
    if "sent1" in record and "sent2" in record:
        parts = string_at(record, "sent1", where), string_at(record, "sent2", where)
        return " ".join(part for part in parts if part)
    if "startphrase" in record:
        return string_at(record, "startphrase", where)
    return string_at(record, "ctx" if "text" not in record else "text", where)


def _endings(record: Record, where: str, remedy: str) -> tuple[str, ...]:
    if "ending0" in record:
        keys = [f"ending{index}" for index in range(len(record)) if f"ending{index}" in record]
        endings = [string_at(record, key, where) for key in keys]
    else:
        if "endings" not in record:
            keys = list(record)
            raise InputError(f"{where}: no endings, got the keys {', '.join(keys) or 'none'}; {remedy}")
        endings = strings_at(record, "endings", where)
    if len(endings) < 2:
        raise InputError(f"{where}: expected at least two endings to choose from, got {len(endings)}")
    return tuple(endings)


def _label(value: object, endings: int, where: str) -> int | None:
    """Return the label. HellaSwag's test set has empty labels."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not is_count(text) or int(text) >= endings:
        actual = repr(value) if isinstance(value, str | int | float) else kind_of(value)
        raise InputError(f"{where}: expected the number of the correct ending, 0 to {endings - 1}, got {actual}")
    return int(text)


def _six_lines(lines: Sequence[str], name: str, labeled: bool | None) -> ExampleSet[ChoiceExample]:
    last = max(number for number, line in enumerate(lines, start=1) if line.strip())
    examples: list[ChoiceExample] = []
    for start in range(0, last, _LINES):
        block = lines[start : min(start + _LINES, last)]
        where = f"{name} line {start + 2}"
        if len(block) > 1:
            label = _label(block[1] or "nothing", _LINES - 2, where)
        if len(block) < _LINES:
            raise InputError(
                f"{name} line {last}: the file ends inside an example; expected {_LINES} lines for each: "
                f"the text, the number of the correct ending, {_LINES - 2} endings"
            )
        examples.append(ChoiceExample(block[0], tuple(block[2:]), None if labeled is False else label))
    starts = list(range(1, last + 1, _LINES))
    description = f"six lines per example, {_ending_counts(examples)}"
    return ExampleSet(examples, name, description, {}, starts)


def _ending_counts(examples: Sequence[ChoiceExample]) -> str:
    counts = sorted({len(example.endings) for example in examples})
    return f"{' or '.join(map(str, counts))} endings"
