"""Zstandard: concatenated frames, truncated files, damaged files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import zstandard

from regard.data.compression import open_zstandard
from regard.data.files import open_text
from regard.errors import InputError

TEXT = "".join(f"line {number * 7919}\n" for number in range(50_000)).encode()


def test_concatenated_frames() -> None:
    packed = zstandard.compress(TEXT) + zstandard.compress(b"") + zstandard.compress(b"end")
    assert open_zstandard(io.BytesIO(packed)).read() == TEXT + b"end"


def test_compression_is_detected_from_the_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(zstandard.compress(b"one\ntwo"))
    with open_text(path) as lines:
        assert list(lines) == ["one", "two"]


@pytest.mark.parametrize("cut", [3, 1000, -1, -5])
def test_a_truncated_file_is_detected(cut: int) -> None:
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    with pytest.raises((EOFError, OSError)):
        open_zstandard(io.BytesIO(packed[:cut])).read()


def test_data_after_the_frames_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(b"one\ntwo\n") + b"rubbish, not a frame")
    with pytest.raises(InputError, match=r"a\.zst is truncated or damaged after line 2"), open_text(path) as lines:
        list(lines)
