"""Files of keys, and hosts that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import InputError
from regard.server.http.access import accepted_hosts, check_exposure, is_loopback, read_api_keys

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


def test_keys_are_found_by_number(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of the class\n\n{KEY}\n  {OTHER} \n")
    keys = read_api_keys(file)
    assert (len(keys), keys.find(KEY), keys.find(OTHER)) == (2, 0, 1)
    assert [keys.find(wrong) for wrong in ("", KEY[:-1], KEY + "0", KEY.upper(), "\udcff")] == [None] * 5
    assert KEY not in repr(vars(keys))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no key"),
        ("# nothing\n", "has no key"),
        (f"{KEY}\nshort\n", r"line 2: a key needs at least 16"),
        ("a key with many spaces\n", "without spaces"),
        (b"\xff\xfe\x00", "is not text"),
        (None, "No such file"),
    ],
)
def test_an_unusable_file_is_one_clear_line(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=message) as error:
        read_api_keys(file)
    assert "\n" not in str(error.value) and KEY not in str(error.value)


def test_a_host_that_others_reach_needs_keys() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.5"):
        check_exposure(host, None, command="serve")
    for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(InputError, match="anyone who can reach this machine's port") as error:
            check_exposure(host, None, command="studio")
        assert "regard studio" in str(error.value) and "--api-key-file" in str(error.value)
        check_exposure(host, "keys", command="serve")


def test_hosts_follow_the_option() -> None:
    assert accepted_hosts("0.0.0.0") == ["*"]
    assert accepted_hosts("127.0.0.1") == ["127.0.0.1", "localhost", "::1"]
    assert accepted_hosts("10.0.0.1")[0] == "10.0.0.1"
