"""Memory limits for text files: line length, decompression bombs, and the command-line option."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from regard.cli.app import run
from regard.data.files import open_bytes, open_text
from regard.data.readers import read_question_examples
from regard.data.readers import read_text_examples as read_examples
from regard.data.rows import open_rows
from regard.errors import InputError
from regard.files.file_input import line_limit
from tests.bombs import MIB, make_bomb

GB = 10**9
Captured = pytest.CaptureFixture[str]


def run_with_memory_limit(program: str, *arguments: object, limit: int) -> subprocess.CompletedProcess[str]:
    """Run Python in a process with at most `limit` bytes of address space."""
    start = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n"
    command = [sys.executable, "-c", start + textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_lines_longer_than_the_limit_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n" + b"x" * 10 + b"\r\n" + b"y" * 10 + b"\n" + b"z" * 10)
    with line_limit(10), open_text(path) as lines:
        assert list(lines) == ["one", "x" * 10, "y" * 10, "z" * 10]
    for content, line in ((b"one\n" + b"x" * 11 + b"\n", 2), (b"x" * 11, 1), (b"x" * 5000, 1)):
        path.write_bytes(content)
        with (
            line_limit(10),
            open_text(path) as lines,
            pytest.raises(InputError, match=rf"a\.txt line {line}.*--max-line"),
        ):
            list(lines)


def test_default_limit_is_64_mib(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (64 * MIB) + b"\n")
    with open_text(path) as lines:
        assert len(next(lines)) == 64 * MIB
    path.write_bytes(b"x" * (64 * MIB + 1) + b"\n")
    with open_text(path) as lines, pytest.raises(InputError, match=r"a\.txt line 1.*64 MiB.*--max-line"):
        next(lines)
    with line_limit(65 * MIB), open_text(path) as lines:
        assert len(next(lines)) == 64 * MIB + 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs address space limits")
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".zip"])
def test_ten_gigabytes_of_zeros_fail_with_one_message_in_constant_memory(suffix: str, tmp_path: Path) -> None:
    path = make_bomb(tmp_path / f"a{suffix}", 10 * GB)
    program = """
        import sys
        from regard.data.files import open_text
        from regard.errors import InputError
        try:
            with open_text(sys.argv[1]) as lines:
                next(lines)
        except InputError as error:
            print(error)
    """
    found = run_with_memory_limit(program, path, limit=512 * MIB)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("\n") == 1
    assert f"a{suffix} line 1" in found.stdout and "--max-line" in found.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs address space limits")
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_many_short_lines_are_bounded_when_a_file_is_read_completely(suffix: str, tmp_path: Path) -> None:
    path = make_bomb(tmp_path / f"a{suffix}", GB, b"a\tb\n" * (4 * MIB))
    program = """
        import sys
        from regard.data import files
        from regard.data.readers import read_text_examples
        from regard.errors import InputError
        try:
            files.MAX_HELD_BYTES = 32 << 20
            read_text_examples(sys.argv[1], task="classify")
        except InputError as error:
            print(error)
    """
    found = run_with_memory_limit(program, path, limit=512 * MIB)
    assert found.returncode == 0, found.stderr[-2000:]
    assert f"a{suffix}" in found.stdout and "unpack it" in found.stdout


def test_decompression_bomb_ends_a_command_with_one_line(tmp_path: Path, capsys: Captured) -> None:
    path = make_bomb(tmp_path / "a.bz2", 10 * GB)
    assert run(["score", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "a.bz2 line 1" in captured.err and "--max-line" in captured.err


@pytest.mark.parametrize(("size", "code"), [("99", 2), ("100", 0), ("1KiB", 0), ("0.1kB", 0), ("64MiB", 0)])
def test_max_line_option(size: str, code: int, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 100 + "\n", encoding="utf-8")
    arguments = ["embed", str(path), "-o", str(tmp_path / "a.npy"), "--device", "cpu", "--max-line", size]
    assert run(arguments) == code, capsys.readouterr().err
    if code:
        assert "a.txt line 1" in capsys.readouterr().err
    with open_text(path) as lines:  # the limit of one run does not apply to the next
        assert list(lines) == ["x" * 100]


@pytest.mark.parametrize("size", ["", "0", "-1", "many", "64MB MB", "1e3", "9" * 30, "nan"])
def test_invalid_sizes_are_rejected(size: str, capsys: Captured) -> None:
    assert run(["score", "-", f"--max-line={size}"]) == 2
    assert "--max-line" in capsys.readouterr().err


def test_the_line_limit_applies_to_readers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("good\tpos\n" + "x" * 100 + "\tneg\n", encoding="utf-8")
    with line_limit(104):
        assert len(read_examples(path, task="classify").examples) == 2
    with line_limit(103), pytest.raises(InputError, match=r"a\.tsv line 2"):
        read_examples(path, task="classify")
    with line_limit(103), pytest.raises(InputError, match=r"a\.tsv line 2"):
        list(open_rows(path))


def test_a_quoted_field_that_never_ends_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"begins here\n' + "more\n" * 1000, encoding="utf-8")
    with line_limit(1000), pytest.raises(InputError, match=r"a\.csv line 2.*quote"):
        list(open_rows(path))
    with line_limit(1000), pytest.raises(InputError, match=r"a\.csv line 2.*quote"):
        read_examples(path, task="classify")


def test_one_json_document_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.readers.records.MAX_DOCUMENT", 2000)
    path = tmp_path / "a.json"
    path.write_text('{"data": [' + ("\n" * 3000) + "]}", encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.json.*JSON lines"):
        read_question_examples(path)


def test_images_in_a_compressed_file_are_bounded(tmp_path: Path) -> None:
    from regard.data.readers import read_image_examples

    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    header = b"\0\0\x08\x03" + (10**7).to_bytes(4, "big") + (28).to_bytes(4, "big") * 2
    path.write_bytes(gzip.compress(header) + gzip.compress(bytes(MIB)) * 10)
    with pytest.raises(InputError, match=r"idx3-ubyte\.gz"):
        read_image_examples(path)


@pytest.mark.parametrize("method", ["ZIP_BZIP2", "ZIP_LZMA"])
def test_unsupported_archive_compression_is_reported(method: str, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", getattr(zipfile, method)) as archive:
        archive.writestr("a.txt", "one\n")
    with pytest.raises(InputError, match=r"a\.zip.*unpack it"), open_bytes(path):
        pass


def test_an_archive_on_a_pipe_is_bounded(tmp_path: Path) -> None:
    program = """
        import io, sys
        from regard.data.files import open_bytes
        from regard.errors import InputError

        class Endless(io.RawIOBase):
            started = False
            def readable(self): return True
            def readinto(self, buffer):
                data = bytes(len(buffer)) if self.started else b"PK\\x03\\x04"
                self.started = True
                buffer[:len(data)] = data
                return len(data)

        class Stdin:
            buffer = io.BufferedReader(Endless())

        sys.stdin = Stdin()
        try:
            with open_bytes("-"):
                pass
        except InputError as error:
            print(error)
    """
    found = run_with_memory_limit(program, limit=2 << 30)
    assert found.returncode == 0, found.stderr[-2000:]
    assert "standard input" in found.stdout


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs /dev/fd")
def test_process_substitution() -> None:
    read, write = os.pipe()
    os.write(write, b"one\ntwo\n")
    os.close(write)
    try:
        with open_text(f"/dev/fd/{read}") as lines:
            assert list(lines) == ["one", "two"]
    finally:
        os.close(read)
