"""One member of a consumer group as a process that a test may kill: prints what it has, whenever that changes.

python -m tests.support.group_member BOOTSTRAP GROUP INSTANCE_ID TOPIC...
"""

from __future__ import annotations

import json
import sys

from consumers.kafka.source import AssignmentChange, KafkaSource, SourcePartition
from stream_engine.config.kafka import KafkaSettings


def main() -> None:
    bootstrap, group, instance, *topics = sys.argv[1:]
    settings = KafkaSettings(
        bootstrap_servers=bootstrap, group_id=group, group_instance_id=instance, session_timeout_ms=60_000
    )
    source = KafkaSource(settings, topics)
    owned: set[SourcePartition] = set()
    told = None
    while True:
        source.poll(100, 1)
        for event in source.events():
            (owned.add if event.change is AssignmentChange.ASSIGNED else owned.discard)(event.partition)
        now = {
            "generation": source._consumer.group_metadata().generation_id,
            "partitions": sorted(map(str, owned)),
        }
        if owned and now != told:
            told = now
            print(json.dumps(now), flush=True)


if __name__ == "__main__":
    main()
