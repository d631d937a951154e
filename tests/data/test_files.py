"""Lines of text files: line breaks, decompression, and error messages."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.files import content_suffix, open_bytes, open_text
from regard.errors import InputError


def zipped(content: bytes, *names: str) -> bytes:
    """A ZIP archive with the content under each name, a note and a folder."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_about.txt", "a note")
        archive.writestr("texts/", "")
        for name in names or ("texts/a.txt",):
            archive.writestr(name, content)
    return packed.getvalue()


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zip": zipped,
}


def lines(path: str | Path) -> list[str]:
    with open_text(path) as found:
        return list(found)


def stdin_of(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))  # type: ignore[arg-type]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tolerate a busy machine
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r")), min_size=1))
def test_only_line_feeds_split_lines(texts: list[str]) -> None:
    content = b"\xef\xbb\xbf" + "\n".join([*texts, ""]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin_of(content))
        assert lines("-") == texts


def test_other_line_breaks_are_preserved(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a\u2028b\x0bc\x85d\re\r\nlast".encode())
    assert lines(path) == ["a\u2028b\x0bc\x85d\re", "last"]


def test_byte_order_mark_is_dropped_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert lines(path) == ["one", "\ufefftwo"]


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_by_name_and_from_standard_input(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = PACK[suffix]("één\ntwee\n".encode())
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(packed)
    assert lines(path) == ["één", "twee"]
    monkeypatch.setattr("sys.stdin", stdin_of(packed))
    assert lines("-") == ["één", "twee"]


def test_text_that_begins_like_bzip2_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"BZh9 is how bzip2 begins\n")
    assert lines(path) == ["BZh9 is how bzip2 begins"]


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("keep", [0, 1, 5, 0.5, -1])
def test_truncated_compressed_files_are_rejected(suffix: str, keep: float, tmp_path: Path) -> None:
    packed = PACK[suffix]("".join(f"line {number}\n" for number in range(1000)).encode())
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(packed[: int(len(packed) * keep) if keep == 0.5 else int(keep)])
    with pytest.raises(InputError, match=rf"a\.txt\{suffix} .*copy or download it again"):
        lines(path)


@pytest.mark.parametrize("suffix", PACK)
def test_damaged_compressed_files_are_rejected(suffix: str, tmp_path: Path) -> None:
    packed = bytearray(PACK[suffix](b"".join(b"line %d\n" % number for number in range(1000))))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / f"a{suffix}"
    path.write_bytes(packed)
    with pytest.raises(InputError, match="damaged after line"):
        lines(path)


def test_archive_must_contain_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    for names, found in ((("b.txt", "c.txt"), r"2 texts \(b\.txt, c\.txt\)"), (("README",), r"0 texts \(none\)")):
        path.write_bytes(zipped(b"x\n", *names))
        with pytest.raises(InputError, match=rf"a\.zip contains {found}, expected one; unpack it"):
            lines(path)
    path.write_bytes(zipped(b"one\ncaf\xe9\n"))
    with pytest.raises(InputError, match=r"a\.zip line 2: byte 4.*0xe9.*iconv -f LATIN1 -t UTF-8"):
        lines(path)
    locked = bytearray(zipped(b"one\n"))
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag that marks a file as encrypted
        position = -1
        while (position := locked.find(mark, position + 1)) >= 0:
            locked[position + flags] |= 1
    path.write_bytes(locked)
    with pytest.raises(InputError, match=r"a\.zip cannot be unpacked .*encrypted"):
        lines(path)


def test_archive_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    stream = io.BufferedReader(Pipe(zipped(b"one\ntwo\n")))  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    assert lines("-") == ["one", "two"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_error_for_invalid_bytes_has_file_line_byte_and_remedy(mark: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(mark + b"fine\ncaf\xe9 \n")
    with pytest.raises(InputError, match=r"a\.txt line 2: byte 4.*0xe9.* not UTF-8.*iconv -f LATIN1"):
        lines(path)
    path.write_bytes(mark + b"caf\xe9\n")
    with pytest.raises(InputError, match=r"a\.txt line 1: byte 4 of the line, 0xe9"):
        lines(path)


def test_utf16_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("hello\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"line 1: this is UTF-16.*iconv -f UTF-16"):
        lines(path)


def test_long_lines_are_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("é" * 1_000_000 + "\nshort\n", encoding="utf-8")
    assert [len(line) for line in lines(path)] == [1_000_000, 5]


def test_missing_file_suggests_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "reviews.tsv").touch()
    with pytest.raises(InputError, match=r"there is no file .*reviws\.tsv; did you mean .*reviews\.tsv"):
        lines(tmp_path / "reviws.tsv")
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        lines(tmp_path / "nowhere" / "a.txt")


def test_folders_and_invalid_names_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder, expected a file$"):
        lines(tmp_path)
    (tmp_path / "b.txt").touch()
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"is a folder, expected a file, such as .*a\.txt"):
        lines(tmp_path)
    for name in ("a\0b", "a" * 5000):
        with pytest.raises(InputError, match="cannot be read"):
            lines(name)


def test_standard_input_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stdin_of(b"a\n")
    monkeypatch.setattr("sys.stdin", stream)
    with open_bytes("-") as file:
        assert file.read() == b"a\n"
    assert not stream.closed
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        lines("-")


def test_errors_of_the_caller_propagate(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    with pytest.raises(OSError, match="mine"), open_text(path):
        raise OSError("mine")


def test_suffix_ignores_the_compression() -> None:
    names = ["train.TSV.gz", "a.csv.zip", "a.jsonl", "a.gz", "-", "a.tar"]
    assert [content_suffix(name) for name in names] == [".tsv", ".csv", ".jsonl", "", "", ".tar"]


@pytest.mark.parametrize("content", [b"one\rtwo\rthree\r", b"text,label\ra,b", "\ufeffPeter B-PER\r\rO".encode()])
@pytest.mark.parametrize("encoding", [None, "utf-16"])
def test_a_classic_mac_file_gets_advice_that_fits(tmp_path: Path, content: bytes, encoding: str | None) -> None:
    path = tmp_path / "mac.txt"
    path.write_bytes(content if encoding is None else content.decode("utf-8-sig").encode(encoding))
    with (
        pytest.raises(InputError, match=r"mac.txt: .*carriage.*tr '\\r' '\\n' < .*mac.txt"),
        open_text(path, encoding) as opened,
    ):
        list(opened)


def test_a_carriage_return_in_a_file_with_lines_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"50%\r100%\ndone\r")
    assert lines(path) == ["50%\r100%", "done"]
