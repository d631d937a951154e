"""Slots of a server."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from regard.server.request_queue import ServerBusy
from regard.server.slots import Slots


def test_slots_are_limited_in_all_and_for_each_client() -> None:
    slots = Slots(3, per_client=2)
    with ExitStack() as stack:
        stack.enter_context(slots.hold("a"))
        stack.enter_context(slots.hold("a"))
        with pytest.raises(ServerBusy, match="2 requests of this client"):
            stack.enter_context(slots.hold("a"))
        stack.enter_context(slots.hold("b"))
        with pytest.raises(ServerBusy, match="it holds 3 requests"):
            stack.enter_context(slots.hold("c"))
    assert slots.used == 0 and not slots._clients
    with pytest.raises(KeyError), slots.hold("a"):
        raise KeyError
    assert slots.used == 0
