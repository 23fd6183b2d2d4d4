"""What a web page may do with this service through its reader's browser.

A browser sends requests for any page that it shows, also to the loopback address. What a page cannot do is to
forge the headers that the browser itself writes: ``Host``, ``Origin``, ``Sec-Fetch-Site``. A page whose name was
made to point at this machine (DNS rebinding) has its own name in ``Host``; one that writes across sites is named
in ``Origin``. Programs that are no browsers send neither of the last two, and are not concerned.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from query_api.errors import ApiError

READS = frozenset({"GET", "HEAD", "OPTIONS"})
ANY = "*"
Headers = Iterable[tuple[bytes, bytes]]


class BrowserRules:
    """``hosts`` are names that the service is reached by besides ``localhost``, the name that it is bound to, and
    every address in digits, which no page has for a name; ``origins`` are those of pages that may do what a page
    of the service's own may. ``*`` allows any."""

    def __init__(self, bound_to: str, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = frozenset({"localhost", bound_to.lower(), *(host.lower() for host in hosts)})
        self._origins = frozenset(origin.lower() for origin in origins)

    def refusal(self, method: str, headers: Headers) -> ApiError | None:
        """Why a browser's request is not carried out; None where it is, or where no browser sent it."""
        host = origin = site = content_type = ""
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1").lower()
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
            elif name == b"sec-fetch-site":
                site = value.decode("latin-1").lower()
            elif name == b"content-type":
                content_type = value.decode("latin-1").partition(";")[0].strip().lower()
        if not self._is_ours(host):
            message = f"the service is not known as {host[:100]!r}: name it in api.allowed_hosts"
            return ApiError(403, "permission_error", message, param="Host", code="host_not_allowed")
        if method in READS or not (origin or site):
            return None
        if not self._may_write(host, origin, site):
            message = (
                f"a page of {origin[:100] or 'another site'} may not write: name its origin in api.cors_origins"
            )
            return ApiError(403, "permission_error", message, param="Origin", code="origin_not_allowed")
        if method != "DELETE" and content_type != "application/json":
            message = f"a browser has to send application/json, not {content_type[:100] or 'nothing'}"
            return ApiError(415, "unsupported_media_type", message, param="Content-Type")
        return None

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host)
        # No Host at all: HTTP/1.0, which no browser speaks.
        return not host or name in self._hosts or ANY in self._hosts or _in_digits(name)

    def _may_write(self, host: str, origin: str, site: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        if origin:
            return origin in (f"http://{host}", f"https://{host}")
        return site in ("same-origin", "none")


def _without_port(host: str) -> str:
    """The name, or the address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _in_digits(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
