"""The one error shape: ``{"error": {"type", "message", "param"?, "code"?}}``, whoever raised it."""

from __future__ import annotations

import math

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stream_engine.messages import ErrorReply

RETRY_AFTER_S = 1.0
"""Advised wait after a 503 whose cause does not say for how long it lasts."""

_FRAMEWORK_KINDS = {404: "not_found_error", 405: "method_not_allowed"}
_ENCODER = msgspec.json.Encoder()


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """``type`` is the kind of error, ``param`` the field or parameter at fault, ``code`` a finer kind."""

    type: str
    message: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    error: ErrorBody


class ApiError(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(kind, message, param, code)
        self.retry_after_s = RETRY_AFTER_S if status == 503 and retry_after_s is None else retry_after_s

    @classmethod
    def from_reply(cls, reply: ErrorReply) -> ApiError:
        """The engine's refusal as the HTTP error that it names."""
        return cls(
            reply.status,
            reply.kind,
            reply.message,
            param=reply.param,
            code=reply.code,
            retry_after_s=reply.retry_after_s,
        )

    def headers(self) -> dict[str, str]:
        """``Retry-After`` in whole seconds, rounded up so that a caller who obeys is not early."""
        return {} if self.retry_after_s is None else {"retry-after": str(max(1, math.ceil(self.retry_after_s)))}


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """422: the request itself is wrong."""
    return ApiError(422, "invalid_request_error", message, param=param, code=code)


def engine_unavailable(message: str) -> ApiError:
    """503: the engine is starting, restarting or gone."""
    return ApiError(503, "engine_unavailable", message)


def unexpected_error() -> ApiError:
    """500 for a bug: what it was is in the server's log only."""
    return ApiError(500, "internal_error", "an unexpected error; the server's log has it")


def error_response(error: ApiError) -> Response:
    content = _ENCODER.encode(ErrorEnvelope(error.body))
    return Response(content, error.status, error.headers(), media_type="application/json")


def install_error_handlers(app: FastAPI) -> None:
    """Give the framework's own errors (404, 405, 422) the one shape as well."""

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return error_response(error)

    @app.exception_handler(HTTPException)
    async def framework_error(_: Request, error: HTTPException) -> Response:
        kind = _FRAMEWORK_KINDS.get(error.status_code, "invalid_request_error")
        response = error_response(ApiError(error.status_code, kind, error.detail))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(RequestValidationError)
    async def parameter_error(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return error_response(invalid(str(first["msg"]), param=str(first["loc"][-1])))
