"""``/docs``: the API's reference for a browser, from files that come with a package; nothing is fetched."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

from query_api.errors import ApiError

router = APIRouter(include_in_schema=False)

VIEWER = files("fastapi_offline") / "static"
FILES = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon.png")

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stream-engine: HTTP API</title>
<link rel="icon" href="/docs/favicon.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
START = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null});\n'
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The viewer styles its elements inline; scripts come from here alone, and nobody may frame the page."""


@router.get("/docs")
async def page() -> Response:
    return HTMLResponse(PAGE, headers={"content-security-policy": POLICY, "x-content-type-options": "nosniff"})


@router.get("/docs/start.js")
async def start() -> Response:
    return Response(START, media_type="text/javascript")


@router.get("/docs/{name}")
async def file(name: str) -> Response:
    """One of the viewer's files."""
    if name not in FILES:
        raise ApiError(404, "not_found_error", f"no file {name[:100]!r}")
    return FileResponse(str(VIEWER / name), headers={"cache-control": "max-age=86400"})
