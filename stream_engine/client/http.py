"""The HTTP client of the commands: where the API is, and its errors in one line."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from stream_engine.client.address import api_url
from stream_engine.client.failure import Failure
from stream_engine.client.options import Options
from stream_engine.client.shown import shown


def open_client(options: Options, url: str | None, timeout_s: float = 15.0) -> httpx.Client:
    """A client of the API at ``url``, or at the address of the settings."""
    base = (url or api_url(options.load().api)).rstrip("/")
    try:
        return httpx.Client(base_url=base, timeout=timeout_s, trust_env=not is_local(base))
    except httpx.InvalidURL as error:
        raise Failure(f"--url {base}: {error}", 2) from error


def is_local(url: str) -> bool:
    """Whether ``url`` is a loopback address of this machine, which no proxy of the environment can reach."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def request(client: httpx.Client, method: str, path: str, **arguments: Any) -> Any:
    """The JSON of a reply. Raises a Failure with the API's own words, or with what to do when there is none."""
    try:
        reply = client.request(method, path, **arguments)
    except httpx.TimeoutException as error:
        raise Failure(f"no reply from {client.base_url} in time") from error
    except httpx.HTTPError as error:
        raise Failure(unreachable(client, error)) from error
    if reply.is_success:
        return reply.json()
    raise Failure(f"{reply.status_code}: {shown(error_message(reply))}")


def listed(client: httpx.Client, path: str, **parameters: str | int) -> list[dict[str, Any]]:
    """All of a list, page after page. Raises as ``request``."""
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        page = request(client, "GET", path, params={**parameters, "after": after})
        rows.extend(page["data"])
        if page.get("next") is None:
            return rows
        after = page["next"]


def unreachable(client: httpx.Client, error: Exception) -> str:
    base = str(client.base_url).rstrip("/")
    return f"no API at {base} ({error}): start one (stream-engine serve), or name yours with --url"


def error_message(reply: httpx.Response) -> str:
    """The message of the API's error shape, or the beginning of whatever came instead."""
    try:
        return str(reply.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return reply.text[:200] or reply.reason_phrase


def session_path(session: str) -> str:
    """A name of dots only would be taken for a step up the path."""
    name = quote(session, safe="")
    return f"/v1/sessions/{name if name.strip('.') else name.replace('.', '%2E')}"
