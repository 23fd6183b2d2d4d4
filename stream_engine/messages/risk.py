"""The watched risk of the fast path: what is to be checked, and how each question class stands."""

from __future__ import annotations

import msgspec

from stream_engine.messages.bounds import (
    Count,
    Gap,
    Hash,
    Id,
    Name,
    Question,
)


class Check(msgspec.Struct, frozen=True, tag=True):
    """A fast answer that the gate let through, to be compared with the full path's on the same version; no reply.

    ``position`` is the decision point (Eq. 1), ``token`` the answer given, ``gap`` its gap in logits.
    ``token_hash`` is the ready board's: 64 bits of a hash of the token sequence up to the decision point.
    """

    session: Id
    question: Question
    question_class: Name
    session_version: Count
    position: Count
    token: Count
    gap: Gap
    token_hash: Hash


class ClassRisk(msgspec.Struct, frozen=True):
    """How one question class stands. ``state`` is what risk control has done; ``open`` is False as well where the
    calibration gave the class no fast path. ``checks``, ``false_accepts``, ``rate`` and its anytime-valid bounds
    are those under the present ``tau``; ``*_total`` are all, over restarts. A decision point is checked at most
    once, so the rate is one of decision points that were asked about. An alarm comes when ``evidence`` passes
    ``threshold``."""

    class_: str = msgspec.field(name="class")
    state: str
    open: bool
    tau: float
    tau_configured: float
    budget: float
    checks: int
    false_accepts: int
    rate: float | None
    lower: float
    upper: float
    evidence: float
    threshold: float
    checks_total: int
    false_accepts_total: int


class CalibrationFacts(msgspec.Struct, frozen=True):
    """The calibration file that the configured taus are from. ``chosen`` says how, ``certified`` whether the rate
    is shown to be at most ``r_max`` (with probability 1 - ``delta``, for windows like those of its sample)."""

    digest: str
    created: str
    r_max: float
    delta: float
    chosen: dict[str, str]
    certified: dict[str, bool]


class CalibrationReport(msgspec.Struct, frozen=True):
    """The gate as it serves now, and what the checks say about it. ``generic_class`` is the one that the generic
    header answers; ``file`` is None where the taus are the profile's. ``dropped`` counts checks that were not made
    since the engine started, by reason; ``waiting`` are due in idle time."""

    model: str
    generic_class: str
    file: CalibrationFacts | None
    check_share: float
    level: float
    horizon: int
    classes: tuple[ClassRisk, ...]
    dropped: dict[str, int]
    waiting: int
