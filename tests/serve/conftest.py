"""States that are served, and clients that ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.support.serve.live import Live, counting
from upgrade_tools.rows.entry_encoding import EntryEncoding
from upgrade_tools.serve.app import Service, application
from upgrade_tools.serve.following import Follower

Serving = Callable[..., TestClient]


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """A state that a test changes."""
    return counting(tmp_path)


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """A state that no test changes."""
    return counting(tmp_path_factory.mktemp("standing"))


@contextmanager
def clients() -> Iterator[Serving]:
    """Hand out what serves a state, and returns who asks."""
    with ExitStack() as opened:

        def serve(place: Path | str, encoding: EntryEncoding | None = None, **options: object) -> TestClient:
            follower = Follower(str(place), poll_s=0.02)
            follower.open()
            made = application(Service(follower, encoding or EntryEncoding()), **options)  # type: ignore[arg-type]
            return opened.enter_context(TestClient(made, base_url="http://127.0.0.1:8471"))

        yield serve


@pytest.fixture
def serving() -> Iterator[Serving]:
    with clients() as serve:
        yield serve


@pytest.fixture(scope="session")
def client(standing: Live) -> Iterator[TestClient]:
    """Asks about the standing state."""
    with clients() as serve:
        yield serve(standing.home / standing.name)
