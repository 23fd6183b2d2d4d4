"""``GET /v1/calibration``: how far the fast path may be trusted now."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from query_api.schemas import responses
from query_api.state import reply_json, state_of
from stream_engine.messages import CalibrationReport, Status, StatusRequest

router = APIRouter(tags=["operations"])


@router.get("/v1/calibration", responses=responses(CalibrationReport, 503), summary="Show the gate and its risk")
async def calibration(request: Request) -> Response:
    """For each question class: tau as configured and as it applies, whether the fast path is open, and what the
    checks of its fast answers say: false-accept rate with anytime-valid bounds, the detector's evidence and
    threshold."""
    status = await state_of(request).ask(StatusRequest(), Status)
    return reply_json(status.calibration)
