"""The table of topics: as ``consumers/kafka/topics.py`` plans them with default settings."""

from __future__ import annotations

from consumers.kafka.topics import DAY_MS, TopicPlan, planned_topics
from docgen.blocks import table
from stream_engine.config.kafka import KafkaSettings


def topics_blocks() -> dict[str, str]:
    """One block, ``topics``: a row a topic."""
    plans = planned_topics(KafkaSettings())
    rows = [(f"`{plan.name}`", plan.purpose, str(plan.partitions), _kept(plan)) for plan in plans]
    return {"topics": table(("topic", "holds", "partitions", "keeps"), *rows)}


def _kept(plan: TopicPlan) -> str:
    if plan.compacted:
        return "the newest of each key (compacted)"
    milliseconds = int(plan.config["retention.ms"])
    return "all" if milliseconds < 0 else f"{milliseconds // DAY_MS} days"
