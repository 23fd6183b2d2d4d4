"""The demo: real data through a real Kafka into a service of its own, questions asked, both paths measured."""

from stream_engine.cli.demo.scenario import run

__all__ = ["run"]
