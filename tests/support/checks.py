"""Checks of fast answers as tests make and see them."""

from __future__ import annotations

from typing import Any

import msgspec

from stream_engine.config.risk import RiskSettings
from stream_engine.messages import Check
from stream_engine.model.forward.distribution import Distribution
from stream_engine.session.token_hash import token_hash

TREND = "What is the trend?"
OTHER_WORDING = "Which way is it going?"
ALL = RiskSettings(check_share=1.0)


def check_of(bench: Any, session: str = "AAPL", **changes: Any) -> Check:
    """As a reader of the board makes it from an answer on the session's present state."""
    live = bench.engine.sessions[session]
    generic = bench.builder.generic_entry
    check = Check(
        session=session,
        question=TREND,
        question_class="trend",
        session_version=live.version,
        position=len(live.tokens) + len(generic),
        token=word_token(bench, "up"),
        gap=99.0,
        token_hash=token_hash(live.tokens, generic),
    )
    return msgspec.structs.replace(check, **changes)


def judged(bench: Any) -> list[Distribution]:
    """The distributions that checks were judged by, from now on."""
    seen: list[Distribution] = []
    desk = bench.engine.verification
    finish = desk.finish

    def watching(work: Any, logits: Distribution) -> None:
        seen.append(logits)
        finish(work, logits)

    desk.finish = watching
    return seen


def dropped(bench: Any) -> dict[str, int]:
    return {reason: n for reason, n in bench.engine.verification.calibration().dropped.items() if n}


def word_token(bench: Any, word: str) -> int:
    tokens = (token for token, answer in bench.builder.answers.items() if tuple(answer) == ("trend", word))
    return int(next(tokens))
