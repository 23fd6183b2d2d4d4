"""Free TCP ports of the loopback address, for services that come and go."""

from __future__ import annotations

import contextlib
import random
import socket

LISTENING_PORTS = range(20_000, 32_000)
"""Below the ports that Linux gives to outgoing connections.

A client that goes on trying the port of a stopped server is else, once in a while, given that very port for its
own end: it then talks to itself, and the server cannot have its port back.
"""

_TRIES = 1000
_chance = random.SystemRandom()  # not the program's own generator: a seed would give the same port to two of them


def free_port() -> int:
    """A port that was free just now. Raises OSError where none of many was."""
    for _ in range(_TRIES):
        port = _chance.choice(LISTENING_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(
        f"no free TCP port found in {_TRIES} tries between {LISTENING_PORTS[0]} and {LISTENING_PORTS[-1]}"
    )
