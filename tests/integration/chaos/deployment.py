"""Engine, consumers and API as processes of their own, which a test kills and starts as it likes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from consumers.kafka.topics import ensure_topics
from consumers.wire.reasons import RawRecord
from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.metrics import samples
from stream_engine.client.options import Options

PATIENCE_S = 120.0
HASH_MODEL = "tests.integration.chaos.hash_model"
ROOT = Path(__file__).parents[3]
SERVING = {"WARMING_UP", "LIVE", "FULL", "EVICTED"}


class Deployment:
    """Processes by name: ``engine``, ``api``, ``consumer``, and further consumers as ``consumer-2``. Nothing
    starts them again but ``start``: a process that ends unasked fails the test that waits meanwhile."""

    def __init__(self, bootstrap: str, program: str = HASH_MODEL, **settings: str) -> None:
        """``program`` is the engine's; settings are named as in ``kafka_group_id``."""
        options = Options(None, "info")
        # In the model of hashes the header has nothing to do with a question: the watch would close the fast path.
        variables = {"STREAM_ENGINE_RISK_CHECK_SHARE": "0"}
        variables |= {f"STREAM_ENGINE_{name.upper()}": value for name, value in settings.items()}
        # Only its names, ports and folders: its supervisor gives a process up that is killed so often.
        self._private = PrivateService(options, bootstrap, variables)
        self._program = program
        self._arguments = [*options.arguments(), "serve"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self.url = self._private.url
        self.kafka = self._private.kafka
        self.topic = self.kafka.bars_topic
        self.partitions = self.kafka.partitions

    def __enter__(self) -> Deployment:
        with self._stack:  # undone where it fails half-way
            self._prepare()
            self._stack = self._stack.pop_all()
        return self

    def _prepare(self) -> None:
        self._stack.push(self._private)
        self._stack.callback(self._end_all)
        servers, group = self.kafka.bootstrap_servers, self.kafka.group_id
        # The group shares out partitions of both topics alike: with as many of trades a second member would get
        # those only.
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({self.kafka.trades_topic: {"num_partitions": 1, "replication_factor": 1}})
        ensure_topics(self.kafka)
        self._viewer = KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
        self._stack.callback(self._viewer.close, timeout_ms=5_000)
        self.http = self._stack.enter_context(httpx.Client(base_url=self.url, timeout=30.0, trust_env=False))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, *names: str) -> None:
        for name in names:
            kind = name.partition("-")[0]
            program = self._program if kind == "engine" else "stream_engine.cli"
            with self._log_file(name).open("ab") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", program, *self._arguments, kind, "--until-stdin-closes"],
                    cwd=ROOT,
                    env=self._private.environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    def change(self, **settings: str) -> None:
        """For processes that start from now on."""
        self._private.environment |= {f"STREAM_ENGINE_{name.upper()}": value for name, value in settings.items()}

    def kill(self, *names: str) -> None:
        """SIGKILL: no process has a moment for anything."""
        for name in names:
            self._processes[name].kill()
        for name in names:
            self._forget(name)

    def stop(self, name: str) -> int:
        """SIGTERM; the exit status."""
        self._processes[name].terminate()
        return self._forget(name)

    def log(self, name: str) -> str:
        file = self._log_file(name)
        return file.read_text("utf-8", "replace") if file.exists() else ""

    def logs(self) -> str:
        """Their ends."""
        return "\n".join(f"--- the end of {name}'s log ---\n{self.log(name)[-4000:]}" for name in self._processes)

    def ended(self, name: str) -> int:
        """Wait for a process that is to end by itself; the exit status."""
        return self._forget(name)

    def _forget(self, name: str) -> int:
        process = self._processes.pop(name)
        status = process.wait(PATIENCE_S)
        assert process.stdin is not None
        process.stdin.close()
        return status

    def _end_all(self) -> None:
        for process in self._processes.values():
            process.kill()
        for name in tuple(self._processes):
            self._forget(name)

    def _log_file(self, name: str) -> Path:
        return self._private.folder / f"{name}.log"

    # --- what is seen from outside --------------------------------------------------------------------

    def until(self, what: Callable[[], Any]) -> Any:
        """Wait until ``what`` returns something true, over failed requests, and return that."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if found := what():
                    return found
            except (httpx.HTTPError, KafkaError):
                pass
            ended = {name: p.returncode for name, p in self._processes.items() if p.poll() is not None}
            assert not ended, f"ended unasked, with status: {ended}\n{self.logs()}"
            assert time.monotonic() < deadline, f"waited in vain; {self.condition()}\n{self.logs()}"
            time.sleep(0.05)

    def condition(self) -> str:
        try:
            return f"{self.http.get('/health/ready').text}\n{self.applied()}"
        except (httpx.HTTPError, KeyError) as error:
            return repr(error)

    def metrics(self) -> list[tuple[str, dict[str, str], float]]:
        text = self.http.get("/metrics").raise_for_status().text
        return [(sample.name, sample.labels, sample.value) for sample in samples(text)]

    def applied(self) -> dict[int, int]:
        """The next offset of each partition that is live."""
        return {
            int(labels["partition"]): int(value)
            for name, labels, value in self.metrics()
            if name == "stream_engine_partition_applied_offset"
            and labels["topic"] == self.topic
            and labels["state"] == "LIVE"
        }

    def lag(self) -> dict[int, int]:
        return {
            int(labels["partition"]): int(value)
            for name, labels, value in self.metrics()
            if name == "stream_engine_consumer_lag_records" and labels["topic"] == self.topic
        }

    def committed(self) -> dict[int, int]:
        """What the group has committed of each partition: nothing before it is still to be written anywhere."""
        partitions = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        found = {tp.partition: self._viewer.committed(tp, timeout_ms=10_000) for tp in partitions}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def sessions(self) -> dict[str, dict[str, Any]]:
        return {
            row["id"]: row for row in self.http.get("/v1/sessions?limit=1000").raise_for_status().json()["data"]
        }

    def caught_up(self, ends: dict[int, int]) -> bool:
        """Everything is applied and served, the consumers know it, and what had to be written is written."""
        lag = self.lag()
        return (
            self.applied() == ends
            and self.committed() == ends
            and set(lag) == set(ends)
            and not any(lag.values())
            and {row["state"] for row in self.sessions().values()} <= SERVING
        )


class TopicReader:
    """Every record of a topic, once, as of each call."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
        )
        partitions = self._consumer.partitions_for_topic(topic) or set()
        self._partitions = [TopicPartition(topic, number) for number in sorted(partitions)]
        self._consumer.assign(self._partitions)

    def ends(self) -> dict[int, int]:
        """The offset after the last, by partition."""
        return {tp.partition: end for tp, end in self._consumer.end_offsets(self._partitions).items()}

    def read(self) -> list[Any]:
        """What came since the last call, up to the ends as of now; in order within a partition."""
        ends, found = self.ends(), []
        while any(self._consumer.position(tp) < ends[tp.partition] for tp in self._partitions):
            for records in self._consumer.poll(500).values():
                found += records
        return found

    def close(self) -> None:
        self._consumer.close(timeout_ms=5_000)


def raw(record: Any) -> RawRecord:
    return RawRecord(record.topic, record.partition, record.offset, record.timestamp, record.key, record.value)
