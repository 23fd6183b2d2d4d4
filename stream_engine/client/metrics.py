"""``/metrics`` as its readers want it: the samples, or the value of one of them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(text: str) -> Iterator[Sample]:
    """Each sample of the Prometheus text format: its name, labels and value. Raises ValueError for other text."""
    for family in text_string_to_metric_families(text):
        yield from family.samples


def value(text: str, name: str, **labels: str) -> float | None:
    """The value of the first sample of that name which has these labels, and perhaps others; None where there is
    none. Raises ValueError for text of another format."""
    wanted = labels.items()
    found = (sample for sample in samples(text) if sample.name == name and wanted <= sample.labels.items())
    return next((sample.value for sample in found), None)
