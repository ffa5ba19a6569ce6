"""What a real broker says of an application: who is in its group, where its input stands, what was deleted."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statestore.format.keys.window_key import encode_window_key
from statestore.recovery.commit.pointer import initial_pointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.kafka.changelog_application import WINDOWED, Application, Message
from tests.support.kafka.totals_application import Amount, run_in_kafka_streams, send
from upgrade_tools.cli.app import main
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.errors import ApplicationRunningError

WAIT_S = 120
WINDOW = "s:window:window-size-ms=10000,retention-ms=120000"


@pytest.mark.usefixtures("java")
def test_an_application_of_the_streams_protocol_is_seen_before_it_has_committed_anything(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client lists no such groups, and until there is a record this one has no offsets."""
    cluster, name = application.cluster, application.name
    topic = f"{name}-amounts"
    cluster.create_topic(topic, 1, {})
    with ThreadPoolExecutor(1) as background:
        state = application.target.parent / "state"
        running = background.submit(
            run_in_kafka_streams, application.servers, name, state, topic, 1, protocol="streams"
        )
        try:
            give_up_s = time.monotonic() + WAIT_S
            while f"{name}-totals-changelog" not in cluster.topics():  # the broker makes it once there is a member
                assert time.monotonic() < give_up_s
                assert not running.done()
                time.sleep(0.1)
            assert cluster.committed(name) == {}
            assert application.restore("totals:headers-kv") == ExitCode.IN_USE
            assert "runs, or has just stopped" in capsys.readouterr().err
            with pytest.raises(ApplicationRunningError):  # who has come meanwhile
                cluster.commit(name, {topic: {0: 0}})
        finally:
            send(application.servers, topic, [Amount("ada", 1, 1_000, [])])
        running.result()
    assert application.restore("totals:headers-kv") == 0
    assert cluster.committed(name) == {topic: {0: 1}}


def test_windows_that_the_broker_has_deleted_by_its_own_clock(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    """The application has stood still since 1970, and one of its windows is gone that had not expired by then."""
    windows = [Message(encode_window_key(b"k", start_ms), timestamp_ms=start_ms) for start_ms in (10_000, 20_000)]
    topic = application.topic(config=WINDOWED)
    application.send(topic, windows)
    application.delete_before(topic, 1)
    assert application.restore(WINDOW) == ExitCode.DAMAGED
    assert application.to_state(WINDOW) == ExitCode.DAMAGED
    said = capsys.readouterr().err
    assert f"{topic}, partition 0: the broker has deleted records up to offset 0" in said
    assert read_metadata(DurableLocation(application.target)) is None
    assert application.to_state(WINDOW, options=["--accept-deleted"]) == 0


def test_a_state_goes_on_at_the_stream_time_of_the_log(application: Application) -> None:
    deleted = encode_window_key(b"k", 1_000_000)
    windows = [Message(deleted), Message(encode_window_key(b"k", 900_000)), Message(deleted, None)]
    application.send(application.topic(), windows)
    assert application.to_state(WINDOW) == 0
    location = DurableLocation(application.target)
    metadata = read_metadata(location)
    assert metadata is not None
    assert initial_pointer(location, metadata.state_id, 0).store_times_ms == {"s": 1_000_000}


def test_offsets_of_an_input_whose_name_begins_as_those_of_kafka_do(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = "__orders"
    application.cluster.create_topic(topic, 1, {})
    application.send(topic, [Message(b"a"), Message(b"b")])
    application.cluster.commit(application.name, {topic: {0: 1}})
    assert application.offsets() == 0
    assert json.loads(capsys.readouterr().out) == {topic: {"0": 1}}


def test_offsets_that_the_input_has_no_more(
    application: Application, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic = f"{application.name}-in"
    application.cluster.create_topic(topic, 1, {})
    application.send(topic, [Message(b"a"), Message(b"b"), Message(b"c")])
    application.send(application.topic(), [Message(b"a")])
    assert application.offsets() == 0
    assert "name the query's topics with --input-topic" in capsys.readouterr().err
    application.cluster.commit(application.name, {topic: {0: 1}})
    application.delete_before(topic, 2)
    assert application.to_state("s:kv") == ExitCode.FOUND_PROBLEMS
    said = capsys.readouterr().err
    assert f"{topic}, partition 0 has the offsets 2 to 3, but not 1" in said
    assert not application.target.exists()
    (tmp_path / "offsets").write_text(json.dumps({topic: {"0": 2}}))  # as it says
    assert application.offsets("--set", str(tmp_path / "offsets")) == 0
    assert application.to_state("s:kv") == 0


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ("nonsense=1", 'No such configuration property: "nonsense"'),
        ("default.topic.config=x", "can't be set from a file"),
        ("session.timeout.ms=x", "Invalid value"),
        ("bootstrap.servers=127.0.0.1:2", "the servers are given already, as 127.0.0.1:1"),
    ],
)
def test_properties_that_the_client_does_not_take(
    properties: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "client").write_text(properties)
    options = ["--application-id", "a", "--client-config", str(tmp_path / "client")]
    assert main(["changelog", "offsets", "127.0.0.1:1", *options]) == ExitCode.USAGE
    assert problem in " ".join(capsys.readouterr().err.replace("│", "").split())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--application-id", ""], "an application's id must be valid"),
        (["--application-id", "a", "--set", "-", "--input-topic", "nonsense"], "--input-topic does not go with --set"),
    ],
)
def test_options_that_make_no_sense(options: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["changelog", "offsets", "127.0.0.1:1", *options]) == ExitCode.USAGE
    assert problem in " ".join(capsys.readouterr().err.replace("│", "").split())
