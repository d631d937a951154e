"""What the page can ask about attention, of texts and of the user's own pictures.

Knows which library function makes the payload, and keeps the pictures that were sent last. Knows nothing of HTTP.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from pathlib import PurePath
from weakref import WeakKeyDictionary

from regard.errors import InputError
from regard.known import DEFAULT
from regard.server.arguments import Arguments, Payload, said
from regard.server.model_registry import ModelRegistry
from regard.server.verbs import RegistryModels, answer
from regard.verbs.look import look

__all__ = ["HEAVIEST", "KEPT", "attention", "picture"]

HEAVIEST = 8_000_000  # bytes of a picture
KEPT = 8  # pictures
KEPT_BYTES = 16_000_000  # of all of them, so that fewer large ones are kept

_pictures: WeakKeyDictionary[ModelRegistry, dict[str, bytes]] = WeakKeyDictionary()


def attention(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `model`, and `text`, with `text_b` for a pair; of a model that looks at pictures only `image`, as
    `picture` has named it."""
    model = said(arguments, "model", DEFAULT)
    if model in registry.entries and registry.entries[model].sees:
        return _seen(registry, model, said(arguments, "image", ""))
    given = {"model": model, "text": said(arguments, "text"), "text_b": said(arguments, "text_b", "")}
    return answer(registry, "look", given).page_data()


def picture(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Keep a picture to be asked about. Arguments: `content`, a PNG or JPEG file in base64, and its `name`."""
    name = PurePath(said(arguments, "name", "picture", limit=1000)).name
    content = arguments.get("content")
    if not isinstance(content, str):
        raise InputError("'content' must be a picture in base64")
    if len(content) > HEAVIEST * 4 // 3 + 4:
        raise InputError(f"{name} is too large; the studio takes pictures of {HEAVIEST:,} bytes. Make it smaller")
    try:
        found = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("'content' is not base64") from None
    from regard.interpret.images import check_image

    check_image(found, name)
    key = f"{hashlib.sha256(found).hexdigest()[:16]}/{name}"
    kept = _pictures.setdefault(registry, {})
    kept.pop(key, None)
    kept[key] = found
    while len(kept) > KEPT or sum(map(len, kept.values())) > KEPT_BYTES:
        del kept[next(iter(kept))]
    return {"image": key}


def _seen(registry: ModelRegistry, model: str, key: str) -> Payload:
    if not key:
        raise InputError(f"{model} looks at pictures; choose a PNG or JPEG file")
    content = _pictures.get(registry, {}).get(key)
    if content is None:
        raise InputError(
            f"the studio keeps the last {KEPT} pictures, of {KEPT_BYTES:,} bytes in all, until it ends; send "
            f"{key.partition('/')[2]!r} again"
        )
    from regard.interpret.attention.recording import attention_result
    from regard.interpret.images import decode_image

    name = key.partition("/")[2]
    with RegistryModels(registry).use(model) as loaded:
        result = attention_result(loaded, image=decode_image(content, name))
    request = look.parse({"model": model, "image": name})
    result.with_reproduction(look.command_line(request), look.python_code(request))
    return result.page_data()
