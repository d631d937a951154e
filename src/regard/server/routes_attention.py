"""The view of attention maps, of texts and of images sent by the page."""

from __future__ import annotations

from regard.errors import InputError
from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, text_argument
from regard.server.studio import Studio
from regard.server.verbs import answer
from regard.verbs.look import look


def attention(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, and `text`, with `text_b` for a pair; for a model that reads images only `image`, the key
    returned by `picture`."""
    model = text_argument(arguments, "model", DEFAULT_MODEL)
    if model in studio.models.entries and studio.models.entries[model].reads_images:
        return _image_attention(studio, model, text_argument(arguments, "image", ""))
    given = {"model": model, "text": text_argument(arguments, "text"), "text_b": text_argument(arguments, "text_b", "")}
    return answer(studio.models, "look", given).page_data()


def picture(studio: Studio, arguments: Arguments) -> Payload:
    """Keep an image for later requests. Arguments: `content`, a PNG or JPEG file in base64, and its `name`."""
    name, content = text_argument(arguments, "name", "picture", limit=1000), arguments.get("content")
    if not isinstance(content, str):
        raise InputError("'content' must be a picture in base64")
    return {"image": studio.images.add(content, name)}


def _image_attention(studio: Studio, model: str, key: str) -> Payload:
    if not key:
        raise InputError(f"{model} looks at pictures; choose a PNG or JPEG file")
    content, name = studio.images.get(key)
    from regard.interpret.attention.recording import attention_result
    from regard.interpret.images import decode_image

    with studio.models.use(model) as loaded:
        result = attention_result(loaded, image=decode_image(content, name))
    request = look.parse({"model": model, "image": name})
    result.with_reproduction(look.command_line(request), look.python_code(request))
    return result.page_data()
