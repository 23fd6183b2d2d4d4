"""Where the API listens, and whether it is ready."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable

from stream_engine.config.api import ApiSettings

PROBE_TIMEOUT_S = 3.0


def api_url(settings: ApiSettings) -> str:
    """Where a client on this machine reaches the API; a wildcard address is reached by the loopback one."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - compared only
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def answers_ready(url: str) -> bool:
    """Whether the API at ``url`` says that questions can be answered."""
    # No proxy: this asks the service that was started here.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health/ready", timeout=PROBE_TIMEOUT_S) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until_ready(url: str, timeout_s: float, gone: Callable[[], bool]) -> bool:
    """Ask until the API is ready; False after ``timeout_s``, or once ``gone`` says that nothing will come."""
    deadline = time.monotonic() + timeout_s
    while not answers_ready(url):
        if gone() or time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
