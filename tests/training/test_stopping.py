"""Signals: the first requests a stop, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from regard.training.stopping import Stop, stopping

BOTH = [signal.SIGINT, signal.SIGTERM]


class Ended(BaseException):
    """Raised by a program's own handler."""


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Install the default handlers of a Python program."""
    before = {number: signal.getsignal(number) for number in BOTH}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def program_handler(number: int, frame: object) -> None:
    raise Ended


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_only_requests_a_stop(number: signal.Signals) -> None:
    with stopping() as stop:
        assert not stop.requested
        stop.deliver()  # no signal was received
        signal.raise_signal(number)
        assert stop.requested and stop.signal == number


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_deferred_signal_is_delivered(number: signal.Signals, error: type[BaseException]) -> None:
    with pytest.raises(error) as raised, stopping() as stop:
        signal.raise_signal(number)
        stop.deliver()
    assert not isinstance(raised.value, SystemExit) or raised.value.code == 143


def test_the_handler_of_the_program_is_called() -> None:
    signal.signal(signal.SIGTERM, program_handler)
    with pytest.raises(Ended), stopping() as stop:
        signal.raise_signal(signal.SIGTERM)
        stop.deliver()


@pytest.mark.parametrize("second", BOTH)
def test_the_second_signal_stops_at_once(second: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), stopping():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(second)
        pytest.fail("it went on")


def test_handlers_are_restored() -> None:
    signal.signal(signal.SIGTERM, program_handler)
    with pytest.raises(ValueError), stopping():
        assert signal.getsignal(signal.SIGTERM) is not program_handler
        raise ValueError
    assert signal.getsignal(signal.SIGTERM) is program_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stopping() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop.requested
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_another_thread_defers_no_signals() -> None:
    found: list[Stop] = []

    def work() -> None:
        with stopping() as stop:
            found.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 1 and not found[0].requested
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
