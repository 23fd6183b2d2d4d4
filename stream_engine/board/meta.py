"""What readers of the board need to turn slots into answers, from the model's profile and its gate."""

from __future__ import annotations

from stream_engine.board.layout import BoardMeta
from stream_engine.decision.gate import Gate
from stream_engine.model.profile import Profile


def board_meta(profile: Profile, gate: Gate, topics: tuple[str, ...] = ()) -> BoardMeta:
    """``topics`` in the order in which evidence counts them."""
    return BoardMeta(
        topics=topics,
        model=profile.name,
        profile_digest=profile.digest(),
        calibration_digest=gate.calibration,
        window_bars=profile.window_bars,
        classes=dict(gate.classes),
        answers=dict(gate.answers),
        generic_class=profile.generic_class.name,
        noise=gate.noise,
        confidence=dict(gate.confidence),
    )
