"""The watched risk of the fast path: what is to be checked, and how each question class stands."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from stream_engine.messages.bounds import (
    MAX_CLASSES,
    Count,
    Finite,
    Gap,
    Hash,
    Id,
    Name,
    NotNegative,
    Question,
    Share,
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

    class_: Name = msgspec.field(name="class")
    state: Name
    open: bool
    tau: Finite
    tau_configured: Finite
    budget: Share
    checks: Count
    false_accepts: Count
    rate: Share | None
    lower: Share
    upper: Share
    evidence: NotNegative
    threshold: NotNegative
    checks_total: Count
    false_accepts_total: Count


class CalibrationFacts(msgspec.Struct, frozen=True):
    """The calibration file that the configured taus are from. ``chosen`` says how, ``certified`` whether the rate
    is shown to be at most ``r_max`` (with probability 1 - ``delta``, for windows like those of its sample)."""

    digest: Name
    created: Name
    r_max: Share
    delta: Share
    chosen: Annotated[dict[Name, Name], Meta(max_length=MAX_CLASSES)]
    certified: Annotated[dict[Name, bool], Meta(max_length=MAX_CLASSES)]


class CalibrationReport(msgspec.Struct, frozen=True):
    """The gate as it serves now, and what the checks say about it. ``generic_class`` is the one that the generic
    header answers; ``file`` is None where the taus are the profile's. ``dropped`` counts checks that were not made
    since the engine started, by reason; ``waiting`` are due in idle time."""

    model: Name
    generic_class: Name
    file: CalibrationFacts | None
    check_share: Share
    level: Share
    horizon: Count
    classes: Annotated[tuple[ClassRisk, ...], Meta(max_length=MAX_CLASSES)]
    dropped: Annotated[dict[Name, Count], Meta(max_length=MAX_CLASSES)]
    waiting: Count
