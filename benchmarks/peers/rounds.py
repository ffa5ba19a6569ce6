"""Runs the peers in turn against one broker, and keeps what they took."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.peers.catalogue import BUILD, Peer
from benchmarks.peers.failure import PeerError
from benchmarks.peers.output_check import ExpectedOutput, OutputCheck, add_topic
from benchmarks.peers.place import Place
from benchmarks.peers.plans import Plan
from benchmarks.peers.process_figures import JAVA, SessionFigures
from benchmarks.peers.run import LOOKS_PER_S, RunFigures, run_peer
from benchmarks.peers.workload_topic import fill_topics, input_records
from benchmarks.workload import PARTITIONS
from statestore.errors import StateStoreError
from statestore.testing.kafka_broker import KafkaBroker
from upgrade_tools.changelogs.cluster import Cluster

_BROKER_SETTINGS: Final = {"log.segment.delete.delay.ms": "1000"}
_BROKER_JVM: Final = ("-XX:+UseG1GC",)
_DELETE_TIMEOUT_S: Final = 60.0
_DELETE_RETRY_S: Final = 0.05
_LOOKS: Final = 500
_LOG: Final = logging.getLogger(__name__)


@dataclass
class Outcome:
    """What the runs of each peer took, and what went wrong with those that failed."""

    runs: dict[str, list[RunFigures]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)
    load_most: float = 0.0
    """The highest load of the machine, of the last minute, at the end of a run."""
    broker_looking_cores: float = 0.0
    """What the broker takes of a core to say how many records are there, as often as it is asked."""


class Rounds:
    """Runs peers against a broker. A peer that fails is not run again."""

    def __init__(self, plan: Plan, cluster: Cluster, broker_session: int, scratch: Path) -> None:
        self.outcome = Outcome()
        self._plan = plan
        self._cluster = cluster
        self._admin = AdminClient(cluster.client_options(), logger=_LOG)
        self._broker_session = broker_session
        self._scratch = scratch
        self._inputs: dict[tuple[str, ...], ExpectedOutput] = {}
        """By input topics, what must come out of them."""

    def fill(self, peer: Peer) -> None:
        """Make a peer's input topics, if they are not there."""
        topics, records = self._topics(peer), peer.records(self._plan.records)
        if topics not in self._inputs:
            started_s = time.monotonic()
            expected = ExpectedOutput()
            fill_topics(self._cluster, topics, expected.folding(input_records(records)))
            self._inputs[topics] = expected
            print(
                f"{records:,} records are in {', '.join(topics)}, after {time.monotonic() - started_s:.0f} s",
                flush=True,
            )

    def ask_broker(self) -> None:
        """Measure what the broker takes to be asked, while nothing else asks it."""
        topic, figures = next(iter(self._inputs))[0], SessionFigures(self._broker_session)
        for _ in range(2):  # the first time it compiles
            before_s = figures.cpu_s()[JAVA]
            for _ in range(_LOOKS):
                self._output_records(topic)
            self.outcome.broker_looking_cores = (figures.cpu_s()[JAVA] - before_s) / _LOOKS * LOOKS_PER_S

    def run(self, peer: Peer, number: int) -> None:
        """Run a peer in a round; the output of its first run is checked."""
        title = f"{peer.name}, round {number} of {self._plan.rounds}"
        if peer.name in self.outcome.failures:
            print(f"{title}: left out, it has failed", flush=True)
            return
        log = BUILD / "logs" / f"{peer.name}-{number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        try:
            figures = self._run(peer, f"out-{peer.name}-{number}", log, lambda said: _say(title, said))
        except (StateStoreError, KafkaException, OSError, RuntimeError) as failure:
            self.outcome.failures[peer.name] = getattr(failure, "problem", str(failure))
            print(f"{title}: FAILED, see {log}\n{failure}", file=sys.stderr, flush=True)
            return
        finally:
            self.outcome.load_most = max(self.outcome.load_most, os.getloadavg()[0])
        self.outcome.runs[peer.name].append(figures)
        _say(title, _summary(figures))

    def _run(self, peer: Peer, topic: str, log: Path, say: Callable[[str], None]) -> RunFigures:
        # A short name: Spark's sockets to Python lie in there, and their paths may have a hundred characters.
        scratch = self._scratch / "run"
        scratch.mkdir()
        records, batches = peer.records(self._plan.records), self._plan.batches
        batch = -(-records // batches) + PARTITIONS * batches  # Spark rounds down in each partition
        before = set(self._cluster.topics())
        place = Place(self._cluster.servers, self._topics(peer), topic, scratch, batch)
        records_done = peer.records_done or (lambda place: self._output_records(place.output_topic))
        try:
            command = peer.command(place)
            self._cluster.create_topic(topic, PARTITIONS, {})
            figures = run_peer(
                command,
                records,
                steady_from=self._plan.steady_from,
                output_records=lambda: records_done(place),
                broker_session=self._broker_session,
                scratch=scratch,
                log=log,
                say=say,
            )
            if peer.is_checked and not self.outcome.runs[peer.name]:
                say("checking what came out ...")
                self._check(place)
            return figures
        finally:
            shutil.rmtree(scratch)
            self._delete_topics(but=before)

    def _topics(self, peer: Peer) -> tuple[str, ...]:
        return tuple(f"{name}-{peer.records(self._plan.records)}" for name in peer.inputs)

    def _check(self, place: Place) -> None:
        check = OutputCheck(self._inputs[place.input_topics])
        add_topic(check, self._cluster, place.output_topic)
        if problems := check.problems():
            raise PeerError("its output is wrong", output="\n".join(problems))

    def _output_records(self, topic: str) -> int:
        return sum(self._cluster.stable_ends(topic, PARTITIONS))

    def _delete_topics(self, *, but: set[str]) -> None:
        """Delete what a peer has made, its changelog among it: the broker is to have no work with it later."""

        def left() -> list[str]:
            return [topic for topic in self._cluster.topics() if topic not in but and not topic.startswith("__")]

        topics = left()
        if topics:
            for deleted in self._admin.delete_topics(topics, operation_timeout=_DELETE_TIMEOUT_S).values():
                deleted.result()
        # The controller answers before the broker has heard of it: until then it shows them.
        give_up_s = time.monotonic() + _DELETE_TIMEOUT_S
        while topics := left():
            if time.monotonic() > give_up_s:
                raise PeerError("its topics do not go away", output="\n".join(topics))
            self._admin.poll(_DELETE_RETRY_S)


def _say(title: str, said: str) -> None:
    print(f"{title}: {said}", flush=True)


def _summary(figures: RunFigures) -> str:
    return (
        f"{figures.records_per_s:,.0f} records/s, a record {figures.python_us:.1f} us of Python, "
        f"{figures.java_us:.1f} of Java, {figures.broker_us:.1f} of the broker; {figures.peak_pss_mb:,.0f} MB, "
        f"first output after {figures.first_output_s:.1f} s, all after {figures.total_s:.0f} s; "
        f"looking took {figures.looking_cores:.1%} of a core"
    )


def measure(plan: Plan) -> Outcome:
    """Run the peers in turn, on a broker of their own."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=BUILD) as directory:
        scratch = Path(directory)
        print("starting the broker ...", flush=True)
        with KafkaBroker(scratch / "broker", settings=_BROKER_SETTINGS, jvm_options=_BROKER_JVM) as broker:
            return _run_rounds(plan, broker, scratch)


def _run_rounds(plan: Plan, broker: KafkaBroker, scratch: Path) -> Outcome:
    # Its clients end with this call: they would complain about a broker that is gone.
    assert broker.process_group is not None
    running = Rounds(plan, Cluster(broker.bootstrap_servers), broker.process_group, scratch)
    for peer in plan.peers:
        running.fill(peer)
    running.ask_broker()
    for number in range(1, plan.rounds + 1):
        for peer in plan.peers:
            running.run(peer, number)
    return running.outcome
