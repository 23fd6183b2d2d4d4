"""The reference for a browser works without a network, and under its own policy."""

from __future__ import annotations

import re

from tests.support.api_service import Service


def test_the_page_needs_nothing_from_elsewhere(service: Service) -> None:
    page = service.http.get("/docs")
    assert page.status_code == 200
    wanted = re.findall(r'(?:src|href)="(.*?)"', page.text)
    assert len(wanted) == 4
    assert all(path.startswith("/docs/") for path in wanted)
    kinds = {path: service.http.get(path) for path in wanted}
    assert {reply.status_code for reply in kinds.values()} == {200}
    assert "SwaggerUIBundle" in kinds["/docs/swagger-ui-bundle.js"].text
    assert "/openapi.json" in kinds["/docs/start.js"].text
    assert service.http.get("/redoc").status_code == 404


def test_the_page_may_run_its_own_scripts_only(service: Service) -> None:
    page = service.http.get("/docs")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert re.findall(r"<script(?![^>]*src=)", page.text) == [], "the policy lets no script stand in the page"


def test_no_other_file_is_served(service: Service) -> None:
    for name in ("core.py", "redoc.standalone.js", "..%2Fcore.py", "%2e%2e/core.py"):
        assert service.http.get(f"/docs/{name}").status_code == 404
