"""The checker that runs real Kafka Streams says of the golden directories what was said when they were made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statestore.testing.jars import java_command
from tests.support.golden.kafka_streams import FIXTURES, facts, load_fixture
from tests.support.java.reader import JavaCompilerMissingError, JavaReaderError, ReadRequest, read_with_kafka_streams

PARAMETERS = ("applicationId", "retentionMs", "windowSizeMs", "segmentIntervalMs", "historyRetentionMs")
OPENED = re.compile(r"directory (?P<name>\S+) opened as (?P<kind>\S+)$")


def request_for(name: str, home: Path) -> ReadRequest:
    fixture = load_fixture(name)
    told = fixture.fixture
    options = {parameter: told[parameter] for parameter in PARAMETERS}
    return ReadRequest(fixture.unpack(home / name), told["kind"], told["store"], options)


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("java")
def test_kafka_streams_reads_what_it_wrote(tmp_path: Path) -> None:
    requests = [request_for(name, tmp_path) for name in FIXTURES]
    before = contents(tmp_path)
    read = dict(zip(FIXTURES, read_with_kafka_streams(requests), strict=True))
    assert {name: read[name] for name in FIXTURES if read[name] != load_fixture(name).logical} == {}
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("java")
def test_a_store_that_does_not_open_is_answered_with_its_errors(tmp_path: Path) -> None:
    # Kafka Streams refuses these; it opens the others, but may stumble over what it finds there later.
    refused = {
        match: fact for name, fact in facts().items() if (match := OPENED.match(name)) and "error" in fact["result"]
    }
    assert len(refused) == 13
    requests = [
        ReadRequest(load_fixture(match["name"]).unpack(tmp_path / str(number)), match["kind"])
        for number, match in enumerate(refused)
    ]
    read = read_with_kafka_streams(requests)
    assert [answer["error"] for answer in read] == [fact["result"]["error"] for fact in refused.values()]


@pytest.mark.usefixtures("java")
def test_a_request_names_the_store_and_its_parameters(tmp_path: Path) -> None:
    task = load_fixture("window").unpack(tmp_path)
    wide, another = read_with_kafka_streams(
        [ReadRequest(task, "window", options={"windowSizeMs": 7}), ReadRequest(task, "kv", "another")]
    )
    assert {entry["end"] - entry["start"] for entry in wide["entries"]} == {7}
    assert (another["store"], another["entries"], another["committedOffset"]) == ("another", [], -4)  # unknown


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [("kvs", {}, "unknown kind of store: kvs"), ("kv", {"retention": 1}, "retention=1")],
)
def test_a_request_without_sense_raises(kind: str, options: dict[str, int], problem: str, tmp_path: Path) -> None:
    with pytest.raises(JavaReaderError, match=problem):
        read_with_kafka_streams([ReadRequest(tmp_path, kind, options=options)])


@pytest.mark.usefixtures("java")
def test_a_directory_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(JavaReaderError, match="no such directory"):
        read_with_kafka_streams([ReadRequest(tmp_path / "gone", "kv")])


@pytest.mark.usefixtures("java")
def test_a_java_without_compiler_is_told_from_other_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = java_command()
    runtime = tmp_path / "bin" / "java"
    runtime.parent.mkdir()
    runtime.write_text(f'#!/bin/sh\nexec "{real}" --limit-modules java.base "$@"\n')
    runtime.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaCompilerMissingError, match="install a JDK"):
        read_with_kafka_streams([ReadRequest(tmp_path, "kv")])


def test_a_word_that_would_be_two_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be sent"):
        ReadRequest(Path("a\tb"), "kv").line()
