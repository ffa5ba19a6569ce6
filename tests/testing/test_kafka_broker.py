"""The jars and the broker that other tests and the demos stand on."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from statestore.errors.harness import JarChecksumError, JarsUnavailableError, JavaNotFoundError, KafkaBrokerError
from statestore.testing import jars
from statestore.testing.jars import KAFKA_VERSION, broker_jars, connector_jars, kafka_streams_jars
from statestore.testing.kafka_broker import KafkaBroker

# Stands in for Ivy: leaves a mark, takes its time, and retrieves one jar to where it was told.
RESOLVES = """#!/bin/sh
echo called >>"$JAVA_HOME/calls"
sleep 0.2
for pattern; do :; done
mkdir "${pattern%/*}"
: >"${pattern%/*}/one-1.0.jar"
"""
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
JAR_SETS = list(jars.read_record())
FAILS_HALF_WAY = RESOLVES + "echo 'no route to host'\nexit 1\n"


@pytest.fixture
def jar_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATESTORE_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "RECORD", tmp_path / "jars.sha256")
    jars.RECORD.write_text("".join(f"{EMPTY_SHA256}  {name}/one-1.0.jar\n" for name in JAR_SETS))
    return tmp_path / "jars"


def install_java(script: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home / "calls"


def test_a_resolved_set_is_used_again_without_java(
    jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = install_java(RESOLVES, tmp_path / "java", monkeypatch)
    first = broker_jars()
    assert [jar.name for jar in first.iterdir()] == ["one-1.0.jar"]
    assert list(jar_cache.iterdir()) == [first]

    assert broker_jars() == first
    assert calls.read_text().split() == ["called"]


def test_sets_do_not_share_a_directory(jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(RESOLVES, tmp_path / "java", monkeypatch)
    directories = {broker_jars(), connector_jars()[0].parent, kafka_streams_jars()}
    assert len(directories) == 3
    assert set(jar_cache.iterdir()) == directories


def test_a_failed_resolve_raises_and_leaves_nothing(
    jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(FAILS_HALF_WAY, tmp_path / "java", monkeypatch)
    with pytest.raises(JarsUnavailableError, match="no route to host") as raised:
        connector_jars()
    assert raised.value.output == "no route to host"
    assert list(jar_cache.iterdir()) == []


def test_what_is_resolved_must_be_what_is_recorded(
    jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(RESOLVES, tmp_path / "java", monkeypatch)
    name = f"kafka-broker-{KAFKA_VERSION}"
    jars.RECORD.write_text(f"{'0' * 64}  {name}/one-1.0.jar\n")
    with pytest.raises(JarChecksumError) as raised:
        broker_jars()
    refused = raised.value
    assert (refused.jar, refused.jar_set, refused.expected, refused.found) == (
        "one-1.0.jar",
        name,
        "0" * 64,
        EMPTY_SHA256,
    )
    assert all(part in str(refused) for part in ("one-1.0.jar", "0" * 64, EMPTY_SHA256, "--record"))
    assert list(jar_cache.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "jar", "expected", "found"),
    [
        (lambda jars: (jars / "one-1.0.jar").write_bytes(b"\0"), "one-1.0.jar", True, True),
        (lambda jars: (jars / "one-1.0.jar").unlink(), "one-1.0.jar", True, False),
        (lambda jars: (jars / "two-1.0.jar").write_bytes(b""), "two-1.0.jar", False, True),
    ],
    ids=["changed", "missing", "added"],
)
def test_a_set_that_was_kept_is_checked_before_its_first_use(
    jar_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    jar: str,
    expected: bool,
    found: bool,
) -> None:
    install_java(RESOLVES, tmp_path / "java", monkeypatch)
    change(broker_jars())
    monkeypatch.setattr(jars, "_checked", set())  # as in another process
    with pytest.raises(JarChecksumError) as raised:
        broker_jars()
    refused = raised.value
    assert (refused.jar, refused.expected is not None, refused.found is not None) == (jar, expected, found)


def test_the_record_is_written_anew_on_demand_only(
    jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_java(RESOLVES, tmp_path / "java", monkeypatch)
    recorded = jars.RECORD.read_text()
    jars.RECORD.write_text("")
    assert jars._main([]) == 1
    assert "one-1.0.jar" in capsys.readouterr().err
    assert jars.RECORD.read_text() == ""
    assert jars._main(["--record"]) == 0
    assert sorted(jars.RECORD.read_text().splitlines()) == sorted(recorded.splitlines())
    assert jars._main([]) == 0


def test_concurrent_resolves_agree_on_one_set(jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = install_java(RESOLVES, tmp_path / "java", monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: broker_jars(), range(2))
    assert calls.read_text().split() == ["called", "called"]
    assert first == second
    assert list(jar_cache.iterdir()) == [first]


def test_without_java_nothing_is_resolved(jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFoundError):
        broker_jars()
    assert list(jar_cache.iterdir()) == []


@pytest.mark.parametrize(
    ("spark", "connector"), [("4.0.5", "4.0.4"), ("4.1.0", "4.1.3"), ("4.2.1", "4.2.0"), ("4.3.0", "4.2.0")]
)
def test_the_connector_is_that_of_the_installed_spark(
    jar_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: str, connector: str
) -> None:
    install_java(RESOLVES, tmp_path / "java", monkeypatch)
    monkeypatch.setattr(jars, "version", {"pyspark": spark}.__getitem__)
    assert connector_jars()[0].parent.name.startswith(f"spark-kafka-connector-{connector}-")


@pytest.mark.usefixtures("kafka")
def test_the_connector_has_the_pinned_token_provider() -> None:
    names = [jar.name for jar in connector_jars()]
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in names
    assert "spark-token-provider-kafka-0-10_2.13-4.0.0.jar" in names
    assert not [name for name in names if name.startswith(("hadoop", "scala-library", "spark-tags"))]


@pytest.mark.usefixtures("java")
def test_kafka_streams_comes_with_its_test_driver_and_with_what_it_runs_on() -> None:
    names = {jar.name for jar in kafka_streams_jars().iterdir()}
    assert {f"kafka-{part}-{KAFKA_VERSION}.jar" for part in ("streams", "streams-test-utils", "clients")} <= names
    assert "rocksdbjni-10.1.3.jar" in names  # the one that wrote the golden directories
    assert sorted(name.rpartition("-")[0] for name in names if name.startswith("slf4j")) == ["slf4j-api", "slf4j-nop"]
    assert [name for name in names if name.startswith("jackson-databind-")]


def process_group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_topic_is_there_when_create_topic_returns_and_is_made_once(broker: KafkaBroker) -> None:
    broker.create_topic("made-once", partitions=4, config={"cleanup.policy": "compact"})
    header, *partitions = broker.describe_topic("made-once").strip().splitlines()
    assert "PartitionCount: 4" in header
    assert "cleanup.policy=compact" in header
    assert len(partitions) == 4
    assert all("Leader: 1" in partition for partition in partitions)
    with pytest.raises(KafkaBrokerError, match="already exists"):
        broker.create_topic("made-once", partitions=4)


@pytest.mark.usefixtures("kafka")
def test_a_given_directory_keeps_topics_over_a_restart(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path)
    with broker:
        broker.create_topic("kept", partitions=2)
        address, group = broker.bootstrap_servers, broker.process_group
    assert group is not None
    assert not process_group_exists(group)
    assert broker.process_group is None
    with broker:
        assert broker.bootstrap_servers == address
        assert "PartitionCount: 2" in broker.describe_topic("kept")


@pytest.mark.usefixtures("kafka")
def test_a_broker_that_does_not_start_raises_with_its_log() -> None:
    broker = KafkaBroker()
    host, port = broker.bootstrap_servers.split(":")
    with closing(socket.socket()) as squatter:
        squatter.bind((host, int(port)))
        with pytest.raises(KafkaBrokerError, match="Address already in use"):
            broker.start()
    assert broker.process_group is None


@pytest.mark.usefixtures("kafka")
def test_a_wrong_setting_raises_with_its_name() -> None:
    broker = KafkaBroker(settings={"log.retention.ms": "soon"})
    with pytest.raises(KafkaBrokerError, match=r"log\.retention\.ms"):
        broker.start()
    assert broker.process_group is None


@pytest.mark.usefixtures("kafka")
def test_options_are_those_of_its_virtual_machine() -> None:
    broker = KafkaBroker(jvm_options=["-XX:+NoSuchOption"])
    with pytest.raises(KafkaBrokerError, match="NoSuchOption"):
        broker.start()
    assert broker.process_group is None


@pytest.mark.usefixtures("kafka")
def test_the_broker_goes_when_python_is_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from statestore.testing.kafka_broker import KafkaBroker\n"
        "with KafkaBroker(pathlib.Path(sys.argv[1])) as broker:\n"
        "    print(broker.process_group, flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as python:
        assert python.stdout is not None
        group = int(python.stdout.readline())
        assert process_group_exists(group)
        python.kill()
    deadline = time.monotonic() + 30
    while process_group_exists(group):
        assert time.monotonic() < deadline, "the broker is still running"
        time.sleep(0.1)
