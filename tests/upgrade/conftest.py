"""An application whose changelogs the commands are tried on, and how they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from changelog_application import Application, Refused
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.testing.kafka_broker import KafkaBroker
from upgrade_tools.cli.exit_codes import ExitCode


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    # Both its tasks that delete what is old would, in seconds, delete records with timestamps such as those here.
    settings = {"log.initial.task.delay.ms": "3600000", "log.cleaner.backoff.ms": "3600000"}
    with KafkaBroker(settings=settings) as broker:
        yield broker


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
