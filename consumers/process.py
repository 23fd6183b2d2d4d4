"""The consumer process: its clients, the registry's thread, and the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from consumers.consumer import Consumer
from consumers.health import HealthFile
from consumers.kafka.source import KafkaSource
from consumers.kafka.topics import ensure_topics
from consumers.metrics import ConsumerMetrics
from consumers.registry.topic_registry import TopicRegistry
from consumers.reports import Reports
from consumers.writers.answers import AnswerSink
from consumers.writers.dead_letter import DeadLetterWriter
from consumers.writers.windows import WindowWriter
from consumers.writers.writers import Writers
from stream_engine.config.config import Config
from stream_engine.messages.transport import EngineLink
from stream_engine.standing.answer_book import AnswerBook


def run_consumer(config: Config, stop: threading.Event, beat: Callable[[], None] = lambda: None) -> None:
    """Consume until ``stop`` is set; ``beat`` is told of each turn of the loop. Raises ConfigError or
    BrokerUnreachable at the start, OffsetResetRequired, WriteRefused, or a KafkaError that trying again cannot
    help."""
    metrics = ConsumerMetrics()
    reports = Reports(metrics, HealthFile(config.kafka.health_file))
    ensure_topics(config.kafka)
    source = KafkaSource(config.kafka, config.kafka.source_topics)
    letters = DeadLetterWriter(config.kafka, skipped=metrics.skipped)
    windows = WindowWriter(config.kafka, letters=letters, skipped=metrics.skipped)
    link = EngineLink(config.transport, metrics.skipped)
    if not config.kafka.standing_topic:
        Consumer(config, source, Writers(letters, windows), link, reports=reports).run(stop, beat)
        return
    book = AnswerBook()
    registry = TopicRegistry(config, book, metrics.skipped)
    ended = threading.Event()
    thread = threading.Thread(target=registry.run, args=(ended,), name="registry")
    thread.start()
    try:
        answers = AnswerSink(config.kafka, book, skipped=metrics.skipped)
        Consumer(config, source, Writers(letters, windows, answers), link, registry, reports).run(stop, beat)
    finally:
        ended.set()
        thread.join()
