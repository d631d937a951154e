"""Slots of a server."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from regard.server.errors import RequestError
from regard.server.http.endpoint import Slots


def test_slots_are_limited_in_all_and_for_each_client() -> None:
    slots = Slots(3, per_client=2)
    with ExitStack() as stack:
        stack.enter_context(slots.hold("a"))
        stack.enter_context(slots.hold("a"))
        with pytest.raises(RequestError, match="2 requests of this client"):
            stack.enter_context(slots.hold("a"))
        stack.enter_context(slots.hold("b"))
        with pytest.raises(RequestError, match="it holds 3 requests"):
            stack.enter_context(slots.hold("c"))
    assert slots.used == 0 and not slots._clients
    with pytest.raises(KeyError), slots.hold("a"):
        raise KeyError
    assert slots.used == 0


def test_connections_of_one_address_share_its_slots_and_keys_do_not() -> None:
    slots = Slots(4, per_client=1)
    with slots.hold("127.0.0.1:5000"), slots.hold("127.0.0.2:5000"), slots.hold("::1:5000"), slots.hold("key 0"):
        pass
    with slots.hold("127.0.0.1:5000"), slots.hold("key 1"):
        for client in ("127.0.0.1:6000", "key 1"):
            assert slots.refusal(client) == slots.messages[1]
        assert not slots.refusal("127.0.0.2:5000") and not slots.refusal("key 0")
