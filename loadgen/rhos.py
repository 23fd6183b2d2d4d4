"""Ratios of queries to updates, as a command line takes them."""

from __future__ import annotations

import click


class Rhos(click.ParamType[tuple[float, ...]]):
    """Positive numbers with commas."""

    name = "rho[,rho...]"

    def convert(
        self, value: str | tuple[float, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            rhos = tuple(float(text) for text in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: numbers with commas, such as 0.1,1,10", param, ctx)
        if not all(0 < rho < float("inf") for rho in rhos):
            self.fail(f"{value!r}: each must be positive", param, ctx)
        return rhos
