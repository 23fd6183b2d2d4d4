"""Lists that come in pages: how long one is, where it begins, and of which sessions."""

from __future__ import annotations

from dataclasses import dataclass

from query_api.errors import invalid
from query_api.schemas import MAX_ID
from query_api.state import ApiState, checked_id

EVERYTHING = ("*",)


@dataclass(frozen=True, slots=True)
class Page:
    """Up to ``limit`` items of the sessions behind ``after``, in order, that ``pattern`` covers, and one of
    ``visible`` as well: what the caller may see."""

    limit: int
    after: str
    pattern: str
    visible: tuple[str, ...]

    @classmethod
    def of(
        cls, state: ApiState, limit: int, after: str, pattern: str | None, visible: tuple[str, ...] = EVERYTHING
    ) -> Page:
        """From the parameters of a request. Raises a 422 ApiError that names the one at fault."""
        if not 1 <= limit <= state.config.api.max_page:
            raise invalid(f"1 to {state.config.api.max_page} (api.max_page)", param="limit")
        if len(after) > MAX_ID:
            raise invalid(f"an id has at most {MAX_ID} characters", param="after")
        return cls(limit, after, "*" if pattern is None else checked_id(pattern, "session"), visible)
