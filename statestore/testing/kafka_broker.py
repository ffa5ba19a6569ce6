"""A real, single-node Kafka broker on loopback, for tests and demos.

    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=4)
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)

It speaks plain text to anybody on this machine and keeps one copy of everything: not for production.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

from statestore.errors.harness import KafkaBrokerError
from statestore.testing.jars import SHORT_LIVED_JVM, broker_jars, java_command

__all__ = ["KafkaBroker"]

_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 30
_TOOL_TIMEOUT_S = 90
_POLL_INTERVAL_S = 0.1
_OUTPUT_TAIL_LINES = 30

_HOST = "127.0.0.1"
# Any 16 bytes in base64 name a cluster; one fixed name lets a kept storage directory be started again.
_CLUSTER_ID = "c3RhdGVzdG9yZS10ZXN0cw"

_BROKER_JVM = ["-Xmx512m", "-Dlog4j2.level=WARN"]
# The log of a tool would mix with its answer.
_TOOL_JVM = ["-Xmx128m", *SHORT_LIVED_JVM, "-Dlog4j2.level=OFF"]

# Runs the broker until it ends or standard input does. The other end of that pipe is held by this Python process only,
# so the broker also goes when Python is killed and can't clean up.
_SUPERVISOR = """
exec 3<&0
"$@" 3<&- &
broker=$!
{ read -r _; kill "$broker"; } <&3 2>/dev/null &
watch=$!
wait "$broker"
status=$?
kill "$watch" 2>/dev/null
wait
exit "$status"
"""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node: nothing to replicate to, and the internal topics' defaults ask for three.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A misspelt topic name must fail, not make a topic with one partition.
    "auto.create.topics.enable": "false",
    # Tests give records fixed, old timestamps; by default the broker deletes what is older than a week, mid-test.
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "16777216",
}


class KafkaBroker:
    """A broker that runs from start() to stop(), or inside `with`.

    Storage is in `directory`, outlives the broker and can be started again; without one it is temporary and goes with
    stop(). `settings` adds server properties or replaces those above; `jvm_options` are the broker's: the default
    starts soon, others may run faster. The address stays the same over a restart. Not thread-safe.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = SHORT_LIVED_JVM,
    ) -> None:
        self._directory = directory
        self._jvm_options = [*_BROKER_JVM, *jvm_options]
        self._port, self._controller_port = free_ports(2)
        self._settings = {**_SETTINGS, **self._addresses(), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._resources = ExitStack()
        self._log = Path()

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """What clients call `bootstrap.servers`: host:port."""
        return f"{_HOST}:{self._port}"

    @property
    def process_group(self) -> int | None:
        """The process group that the broker runs in, alone; None while it does not run."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the broker and wait until it answers.

        Raises KafkaBrokerError if it does not, with the end of its log, and JarsUnavailableError.
        """
        if self._process is not None:
            raise ValueError("the broker is already running")
        try:
            self._launch()
            self._wait_until(self._answers, _START_TIMEOUT_S, "did not answer in time")
        except BaseException:  # KeyboardInterrupt as well: it must not leave a process behind
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker and wait until it is gone, by force if needed; do nothing if it does not run."""
        process, self._process = self._process, None
        try:
            if process is not None:
                _end(process)
        finally:
            self._resources.close()

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until every partition has a leader: before that, clients see errors or nothing.

        Raises KafkaBrokerError if the broker refuses, for example because the topic exists.
        """
        command = ["--create", "--topic", name, "--partitions", str(partitions)]
        for key, value in (config or {}).items():
            command += ["--config", f"{key}={value}"]
        self._topics(*command)
        self._wait_until(
            lambda: self.describe_topic(name).count("Leader: 1") == partitions,
            _TOOL_TIMEOUT_S,
            f"topic {name!r} has partitions without a leader",
        )

    def describe_topic(self, name: str) -> str:
        """What Kafka's own tool says about a topic. Raises KafkaBrokerError if there is none of that name."""
        return self._topics("--describe", "--topic", name)

    def _addresses(self) -> dict[str, str]:
        own, controller = f"{_HOST}:{self._port}", f"{_HOST}:{self._controller_port}"
        return {
            "listeners": f"PLAINTEXT://{own},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{own}",
            "controller.quorum.voters": f"1@{controller}",
        }

    def _launch(self) -> None:
        directory = self._directory or Path(
            self._resources.enter_context(tempfile.TemporaryDirectory(prefix="statestore-kafka-"))
        )
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "broker.log"
        properties = directory / "server.properties"
        settings = {"log.dirs": str(directory / "data"), **self._settings}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        format_command = ["format", "--ignore-formatted", "--cluster-id", _CLUSTER_ID, "--config", str(properties)]
        _run_tool("kafka.tools.StorageTool", *format_command)
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C reaches Python only, which then stops the broker in its own time.
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISOR, "sh", *_java(self._jvm_options), "kafka.Kafka", str(properties)],
                stdin=PIPE,
                stdout=log,
                stderr=STDOUT,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        """Whether the broker names itself in an answer: more than an open port, which it has earlier."""
        with closing(socket.socket()) as probe:
            if probe.connect_ex((_HOST, self._port)) != 0:
                return False
        # The tool starts a JVM, so it only runs once the port is open.
        tool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
        try:
            answer = _run_tool(tool, "--bootstrap-server", self.bootstrap_servers)
        except KafkaBrokerError:
            return False
        return f"{self.bootstrap_servers} (id: 1 " in answer

    def _topics(self, *arguments: str) -> str:
        tool = "org.apache.kafka.tools.TopicCommand"
        return _run_tool(tool, "--bootstrap-server", self.bootstrap_servers, *arguments)

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float, problem: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._process is None or self._process.poll() is not None:
                raise KafkaBrokerError("does not run", output=self._log_tail())
            if time.monotonic() > deadline:
                raise KafkaBrokerError(problem, output=self._log_tail())
            time.sleep(_POLL_INTERVAL_S)

    def _log_tail(self) -> str:
        return _tail(self._log.read_text(errors="replace")) if self._log.is_file() else "(no log)"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the supervisor end the broker, then end what is left of its process group."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _java(options: list[str]) -> list[str]:
    return [java_command(), *options, "-cp", f"{broker_jars()}/*"]


def _run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's command line tools and return what it said. Raises KafkaBrokerError if it fails."""
    command = [*_java(_TOOL_JVM), main_class, *arguments]
    try:
        done = subprocess.run(
            command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise KafkaBrokerError(f"{main_class} did not end in {_TOOL_TIMEOUT_S} s", output=str(exc.output)) from exc
    if done.returncode != 0:
        raise KafkaBrokerError(f"{main_class} failed", output=_tail(done.stdout))
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on."""
    # All are held until all are known, so that no port is found twice.
    with ExitStack() as held:
        sockets = [held.enter_context(closing(socket.socket())) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_OUTPUT_TAIL_LINES:])
