"""Errors of requests to a server, each with its HTTP status. Imports neither torch nor HTTP libraries."""

from __future__ import annotations

from regard.cancellation import Cancelled
from regard.errors import RegardError

Fault = tuple[int, str, str | None, str | None]  # what a message between processes carries


class RequestError(RegardError):
    """A request that is answered with `status`. `param` names the faulty field; `code` is for programs."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def to_tuple(self) -> Fault:
        return self.status, str(self), self.param, self.code

    @staticmethod
    def from_tuple(fault: Fault) -> RequestError:
        status, message, param, code = fault
        return RequestError(status, message, param=param, code=code)


class ClientDisconnected(Cancelled):
    """The client that sent the request has closed its connection."""


def invalid(message: str, *, param: str | None = None) -> RequestError:
    """422: the request can be read, but a field has no valid value."""
    return RequestError(422, message, param=param, code="invalid_value")


def too_long(message: str, *, param: str) -> RequestError:
    """413: a text has more tokens than the model reads."""
    return RequestError(413, message, param=param, code="context_length_exceeded")


def busy(message: str) -> RequestError:
    """429: too many requests are held already."""
    return RequestError(429, message)


def unavailable(message: str) -> RequestError:
    """503: the process of the model has ended or is not ready."""
    return RequestError(503, message, code="model_unavailable")
