"""Values out of the Prometheus text format."""

from __future__ import annotations

import pytest

from stream_engine.client.metrics import samples, value

TEXT = r"""# HELP hits_total Hits.
# TYPE hits_total counter
hits_total 7.0
# TYPE hits_total_of gauge
hits_total_of{topic="a,b",partition="1"} 3.0
hits_total_of{topic="say \"c\" }",partition="2"} 4.0
"""


@pytest.mark.parametrize(
    ("name", "labels", "found"),
    [
        ("hits_total", {}, 7.0),
        ("hits", {}, None),
        ("hits_total_of", {}, 3.0),
        ("hits_total_of", {"topic": "a,b"}, 3.0),
        ("hits_total_of", {"topic": 'say "c" }', "partition": "2"}, 4.0),
        ("hits_total_of", {"topic": "a,b", "partition": "2"}, None),
    ],
)
def test_a_value_is_found_by_name_and_labels(name: str, labels: dict[str, str], found: float | None) -> None:
    assert value(TEXT, name, **labels) == found


def test_every_sample_is_told() -> None:
    assert [sample.value for sample in samples(TEXT)] == [7.0, 3.0, 4.0]
