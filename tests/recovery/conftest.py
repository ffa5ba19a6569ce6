"""A shard driven the way a driver does it."""

from pathlib import Path

import pytest

from tests.support.recovery.shards import Shard


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path)
