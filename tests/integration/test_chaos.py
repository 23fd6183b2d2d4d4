"""Processes killed at random moments of a replay: nothing lost, nothing twice, nothing back, every restart dull.

``make chaos`` runs 200 rounds and prints the report; STREAM_ENGINE_CHAOS_ROUNDS and STREAM_ENGINE_CHAOS_SEED
choose others (the seed may be "random"). The seed decides what is published and who is killed; when that hits is
up to the machine.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import time
from collections import Counter

from stream_engine.localkafka import TemporaryKafka
from tests.integration.chaos.deployment import Deployment
from tests.integration.chaos.scene import Scene

ROUNDS = int(os.environ.get("STREAM_ENGINE_CHAOS_ROUNDS", "20"))
GIVEN_SEED = os.environ.get("STREAM_ENGINE_CHAOS_SEED", "1")
SEED = random.randrange(10**6) if GIVEN_SEED == "random" else int(GIVEN_SEED)
BROKER = "broker"
# Twenty rounds' worth; a broker takes longest to come back.
VICTIMS = [
    *8 * ["engine"],
    *5 * ["consumer"],
    *3 * ["api"],
    *1 * [BROKER],
    *2 * ["engine consumer"],
    *1 * ["engine consumer api"],
]


def attack(scene: Scene, broker: TemporaryKafka, victim: str) -> float:
    """Publish, kill in the midst of it, publish on, wait until all is well. Seconds from the kill until then."""
    names = victim.split()
    scene.stream()
    killed = time.monotonic()
    if victim == BROKER:
        broker.kill9()
    else:
        scene.deployment.kill(*names)
    scene.stream()
    if victim == BROKER:
        broker.restart()
    else:
        scene.chance.shuffle(names)
        scene.deployment.start(*names)
    scene.stream()
    scene.settle()
    return time.monotonic() - killed


def report(scene: Scene, recoveries: dict[str, list[float]]) -> str:
    audit, witness = scene.audit, scene.witness
    replays = re.findall(r"assigned: replay from (\d+), live from (\d+)", scene.deployment.log("engine"))
    replayed = sum(int(live) - int(start) for start, live in replays)
    again = sum(audit.letters.values()) - len(audit.letters)
    reasons = Counter(letter.reason for letter in audit.letters)
    return "\n".join(
        [
            f"{sum(map(len, recoveries.values()))} rounds, seed {SEED}",
            *(
                f"  {victim:22}{len(times):4} rounds   all well after p50 {statistics.median(times):5.1f} s, "
                f"max {max(times):5.1f} s"
                for victim, times in sorted(recoveries.items())
            ),
            f"  records {audit.reference.records}, applied as without any kill; answers told {audit.answers}",
            f"  partitions assigned {len(replays)} times, records replayed in that {replayed}",
            f"  dead letters {len(audit.letters)} (written once more: {again}): {dict(reasons)}",
            f"  questions {dict(witness.statuses)}, and {witness.unreachable} requests found no API",
        ]
    )


def test_a_service_that_is_killed_again_and_again_is_as_if_it_never_was() -> None:
    print(f"chaos: seed {SEED}, {ROUNDS} rounds", flush=True)
    chance = random.Random(SEED)
    recoveries: dict[str, list[float]] = {}
    victims: list[str] = []
    settings = {
        "kafka_session_timeout_ms": "6000",
        "kafka_poll_records": "20",
        "engine_quiet_records": "100",
        "engine_step_tokens": "96",
        "engine_stuck_after_s": "3",
    }
    with (
        TemporaryKafka() as broker,
        Deployment(broker.bootstrap, **settings) as deployment,
        Scene(deployment, chance) as scene,
    ):
        scene.settle()
        for number in range(ROUNDS):
            victims = victims or chance.sample(VICTIMS, len(VICTIMS))
            victim = victims.pop()
            seconds = attack(scene, broker, victim)
            recoveries.setdefault(victim, []).append(seconds)
            print(f"round {number + 1}: {victim}, all well again after {seconds:.1f} s", flush=True)
        print(report(scene, recoveries), flush=True)
