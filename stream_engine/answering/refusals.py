"""Why a query gets no answer, in words for the one who asked."""

from __future__ import annotations

from stream_engine.messages import ErrorReply
from stream_engine.questions.router import Router

RETRY_AFTER_S = 1.0


def unsupported(router: Router) -> ErrorReply:
    """The model does not answer such a question: says what can be asked."""
    return ErrorReply(
        422, "invalid_request_error", router.refusal(), param="question", code="question_not_supported"
    )


def question_too_long() -> ErrorReply:
    message = "the question has no room in the session's share of the cell budget; ask a shorter one"
    return ErrorReply(422, "invalid_request_error", message, param="question", code="question_too_long")


def not_found(session_id: str) -> ErrorReply:
    """No record with that key was applied yet."""
    message = f"no session {session_id!r}: no record with that key was applied yet"
    return ErrorReply(404, "not_found_error", message)
