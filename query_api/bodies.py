"""Request bodies: JSON in UTF-8, whatever the content type says it is; another coding is refused by its name."""

from __future__ import annotations

import codecs
import re

from fastapi import Request

from query_api.errors import ApiError
from query_api.schemas import Body, decode

_CHARSET = re.compile(r'charset\s*=\s*"?([^\s";]*)', re.I)
_UTF_8 = ("utf-8", "utf8", "us-ascii", "ascii")
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The request's body as ``kind``. A plain ``curl -d`` calls JSON a form: that alone is no reason to refuse it.

    Raises a 415 ApiError for a body that is compressed, in several parts, or not in UTF-8; else as ``decode``.
    """
    for name, value in request.scope["headers"]:
        if name == b"content-encoding":
            coding = value.decode("latin-1").strip()
            if coding.lower() not in ("", "identity"):
                raise _unsupported(f"Content-Encoding: {coding} is not taken; send the body as it is", name)
        elif name == b"content-type":
            text = value.decode("latin-1").strip()
            if text.lower().startswith("multipart/"):
                raise _unsupported(f"Content-Type: {text.partition(';')[0]} is not taken; send JSON", name)
            charset = _CHARSET.search(text)
            if charset and charset[1].lower() not in _UTF_8:
                raise _unsupported(f"charset {charset[1]} is not taken; send UTF-8", name)
    content = (await request.body()).removeprefix(codecs.BOM_UTF8)
    # The first two characters of JSON are ASCII: zeros among their bytes mean two or four bytes a character.
    if content.startswith(_WIDE) or b"\0" in content[:4]:
        raise _unsupported("the body is UTF-16 or UTF-32; send UTF-8")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise _unsupported(f"the body is not UTF-8 (byte {error.start}); send UTF-8") from None
    return decode(kind, content)


def _unsupported(message: str, header: bytes | None = None) -> ApiError:
    param = None if header is None else header.decode().title()
    return ApiError(415, "unsupported_media_type", message, param=param)
