"""Strict JSON: rejected input and error locations."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.files.json_files import json_bytes, read_json


def write_json(folder: Path, data: str | bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_reads_the_output_of_json_dumps(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True, {"b": "ü\n"}], "a ": -1e-12, "": 10**30}
    assert read_json(write_json(tmp_path, json.dumps(value))) == value
    assert read_json(write_json(tmp_path, json_bytes(value))) == value
    assert json_bytes({"b": 1, "a": 2}) == json_bytes({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("data", "location", "reason"),
    [
        ("", ":1:1", "not valid JSON"),
        ('{\n  "a": 1,\n  "b": \n', ":4:1", "not valid JSON"),
        ("{'a': 1}", ":1:2", "not valid JSON"),
        ('{"a": 1} x', ":1:10", "not valid JSON"),
        ('{"a": "tab\there"}', ":1:11", "not valid JSON"),
        ("[1, 2]", ":1:1", "expected a JSON object"),
        ("null", ":1:1", "expected a JSON object"),
        ('{"a": 1,\n "a": 2}', ":2:2", "the key 'a' appears twice"),
        ('{"x": {"b": 1,\n\n  "b": 1}}', ":3:3", "the key 'b' appears twice"),
        ('{"a": "NaN",\n  "b": NaN}', ":2:8", "NaN is not a finite number"),
        ('{"a": [1,\n -Infinity]}', ":2:2", "-Infinity is not a finite number"),
        ('{"a": 1e999}', ":1:7", "1e999 is not a finite number"),
        (b'{"a":\n "x\xff"}', ":2:4", "byte 0xff is not UTF-8"),
        (b"\x80\x04}q\x00.", ":1:1", "byte 0x80 is not UTF-8"),
    ],
)
def test_error_has_line_and_column(tmp_path: Path, data: str | bytes, location: str, reason: str) -> None:
    path = write_json(tmp_path, data)
    with pytest.raises(InputError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}{location}: ") and reason in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"a": ' + "9" * 100_000 + "}",
        '{"a": "' + "x" * 16_000_000 + '"}',
        " " * 16_000_001 + "{}",
    ],
    ids=["lists", "objects", "closed", "digits", "long", "blank"],
)
def test_json_bombs_are_rejected(tmp_path: Path, data: str) -> None:
    with pytest.raises(InputError, match=r"config\.json.*refused"):
        read_json(write_json(tmp_path, data))


def test_locating_an_error_is_fast_in_a_hostile_file(tmp_path: Path) -> None:
    path = write_json(tmp_path, '{"a": NaN}' + '"\\' * 2_000_000)
    start = time.process_time()
    with pytest.raises(InputError, match=r"config\.json:1:7: NaN"):
        read_json(path)
    assert time.process_time() - start < 5


def test_custom_size_limit(tmp_path: Path) -> None:
    path = write_json(tmp_path, '{"a": 1}')
    assert read_json(path, limit=8) == {"a": 1}
    with pytest.raises(InputError, match="larger than 7 bytes"):
        read_json(path, limit=7)


def test_missing_files_and_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputError, match="not a regular file"):
        read_json(tmp_path)


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}
