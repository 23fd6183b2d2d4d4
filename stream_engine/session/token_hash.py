"""A hash of a session's tokens: by it a ready distribution is known to be of the log as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np


def token_hash(tokens: Sequence[int], entry: Sequence[int] = ()) -> int:
    """64 bits of a hash of the token sequence up to the decision point: what ``valid`` is about."""
    sequence = np.array([*tokens, *entry], dtype=np.int32).tobytes()
    return int.from_bytes(blake2b(sequence, digest_size=8).digest(), "little")
