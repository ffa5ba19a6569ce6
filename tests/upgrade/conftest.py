"""An application whose changelogs the commands are tried on, the command line, and states to try it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata, read_metadata
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.kafka.changelog_application import Application, Refused
from tests.support.recovery.rescaling import KEYS, States, every_kind
from tests.support.recovery.shards import TOTALS, Shard
from tests.support.tools.runs import Tools
from upgrade_tools.cli.exit_codes import ExitCode


@pytest.fixture
def application(broker: KafkaBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Application:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return Application(broker.bootstrap_servers, name[-100:], tmp_path / "made")


@pytest.fixture
def refused(application: Application, capsys: pytest.CaptureFixture[str]) -> Refused:
    def check(status: int, expected: ExitCode, *words: str) -> str:
        said = " ".join(capsys.readouterr().err.split())
        assert (status, [word for word in words if word not in said]) == (expected, []), said
        assert not application.target.exists() or read_metadata(DurableLocation(application.target)) is None
        assert [path.name for path in application.target.parent.iterdir() if ".unfinished" in path.name] == []
        return said

    return check


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """The only shard of a state with one topic, and a snapshot for every third delta."""
    options = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000)
    made = Shard(tmp_path, recovery=options)
    topology = ({"type": "source", "name": "in", "topics": None},)
    agree_on_metadata(made.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), topology))
    return made


@pytest.fixture
def tools(capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(capsys)


@pytest.fixture
def states(tmp_path: Path) -> States:
    """A state of three shards with stores of every kind; what is committed of it is in home/pointers."""
    made = States(tmp_path, every_kind(), 3)
    made.put_everywhere({key: 50 + number for number, key in enumerate(KEYS)})
    made.write_pointers()
    return made


@pytest.fixture
def rated_states(states: States) -> States:
    """A state whose global store holds something, too."""
    states.put_globally("rate", "1")
    states.write_pointers()
    return states
