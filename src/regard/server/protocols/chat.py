"""OpenAI's /v1/chat/completions: messages, which the chat template of a model makes a prompt of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from regard.server.errors import invalid
from regard.server.protocols.completions import MAX_LOGPROBS, MAX_TOKENS, CompletionForm, GenerationBody, Usage

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class ContentPart(BaseModel):
    """A part of a message; other types than text are refused."""

    model_config = ConfigDict(extra="allow")
    type: str
    text: str | None = None


class Message(BaseModel):
    """`role` is system, developer (the same), user or assistant. The texts of several parts become lines."""

    model_config = ConfigDict(extra="allow")
    role: str
    content: str | list[ContentPart] | None = None

    def to_dict(self, number: int) -> dict[str, str]:
        """The message for a template; RequestError for what it would leave out, by name."""
        place = f"messages.{number}"
        if self.role not in ROLES:
            roles = ", ".join(ROLES)
            raise invalid(
                f"{place}.role: expected one of {roles}, found {self.role[:80]!r}; tools and functions are not "
                "supported",
                param="messages",
            )
        for name, value in (self.model_extra or {}).items():
            if value:
                raise invalid(f"{place}.{name[:80]} is not supported; leave it out", param="messages")
        parts = self.content if isinstance(self.content, list) else [ContentPart(type="text", text=self.content)]
        for part in parts:
            if part.type != "text" or part.model_extra:
                name = part.type if part.type != "text" else next(iter(part.model_extra or {}))
                raise invalid(
                    f"{place}.content: expected a text, or parts of the type text, found {name[:80]!r}, which is not "
                    "supported",
                    param="messages",
                )
            if part.text is None:
                raise invalid(f"{place}.content: expected a text, found none", param="messages")
        return {"role": ROLES[self.role], "content": "\n".join(part.text or "" for part in parts)}


class ChatBody(GenerationBody):
    """As OpenAI defines it. Tools, functions, other formats of the answer, images, audio, penalties and `logit_bias`
    are refused by name."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Of the answer; default: the rest of the context, at most 4096."
    )
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="The same as max_tokens.")
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    response_format: dict[str, Any] | None = Field(None, description='Nothing but {"type": "text"}.')
    tool_choice: Any = Field(None, description='Nothing but "none".')

    def check(self) -> None:
        super().check()
        if self.tool_choice not in (None, "none"):
            raise invalid("tool_choice is not supported; leave it out", param="tool_choice")
        if self.response_format not in (None, {"type": "text"}):
            raise invalid(
                "response_format is not supported beyond text; leave it out, and check what the model writes",
                param="response_format",
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs; set it to true", param="top_logprobs")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise invalid("max_tokens and max_completion_tokens differ; leave out max_tokens", param="max_tokens")

    def arguments(self) -> dict[str, Any]:
        return {
            **super().arguments(),
            "messages": [message.to_dict(number) for number, message in enumerate(self.messages)],
            "max_tokens": self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens,
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
        }


class AnswerMessage(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None


class TokenLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    content: list[ContentLogprob]
    refusal: None


class ChatChoice(BaseModel):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatForm(CompletionForm):
    prefix: ClassVar[str] = "chatcmpl-"
    answer, chunk = "chat.completion", "chat.completion.chunk"

    def choice(self, text: str, logprobs: Sequence[Any] | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"message": message, "logprobs": self.logprobs(logprobs)}

    def opening(self) -> dict[str, Any] | None:
        return {"delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None}

    def piece(self, text: str, logprobs: Sequence[Any] | None) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}, "logprobs": self.logprobs(logprobs)}

    def logprobs(self, entries: Sequence[Any] | None) -> dict[str, Any] | None:
        if entries is None:
            return None
        content = [{**_token(*token), "top_logprobs": [_token(*one) for one in top or ()]} for token, top, _ in entries]
        return {"content": content, "refusal": None}


def _token(text: str, data: bytes, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": list(data)}
