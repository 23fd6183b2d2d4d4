"""Which methods a path takes: what 405 and OPTIONS tell, and what HEAD is allowed on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from re import Pattern

from starlette.routing import BaseRoute, Route


@dataclass(slots=True)
class Resource:
    """All routes of one path, as it is documented. A path that can be read can be asked for its head as well."""

    path: str
    pattern: Pattern[str]
    methods: set[str] = field(default_factory=lambda: {"OPTIONS"})

    @property
    def allow(self) -> str:
        """The value of an ``Allow`` header."""
        return ", ".join(sorted(self.methods))


class Resources:
    """The resources of an application, in the order of its routes: a path is of the first that matches it, as ids
    that take slashes would swallow the paths behind them."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        found: dict[str, Resource] = {}
        for route in routes:
            if isinstance(route, Route):
                resource = found.setdefault(route.path, Resource(route.path, route.path_regex))
                resource.methods |= route.methods or set()
                if "GET" in resource.methods:
                    resource.methods.add("HEAD")
        self._all = tuple(found.values())

    def of(self, path: str) -> Resource | None:
        return next((resource for resource in self._all if resource.pattern.match(path)), None)
