"""Cases that fail show what came out beside what was expected, and their stores are files in memory."""

import tempfile
from collections.abc import Iterator

import pytest

from tests.conformance.stacks import SCRATCH

pytest.register_assert_rewrite("tests.support.dsl.kafka_cases")


@pytest.fixture(autouse=True, scope="session")
def files_in_memory() -> Iterator[None]:
    """Hundreds of cases open a RocksDB or more each: a disk under load makes them take most of a minute.

    Also what a process runs after them: it saves two minutes in all.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", SCRATCH)
        yield
