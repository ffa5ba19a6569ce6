"""What deltas and snapshots that are still there tell: the line that is committed, and nothing of what was given up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statestore.recovery.snapshots.options import RecoveryOptions
from tests.serve.conftest import Serving
from tests.serve.test_answers import answer
from tests.support.recovery.shards import wait_for_uploads
from tests.support.serve.live import Live, counted, word_counts
from upgrade_tools.serve.history import pointer_at, versions_of

BATCHES = 11


def lived(home: Path) -> Live:
    """One shard after batches of which each writes `a`, and one in four `b`; with snapshots."""
    live = Live(home, word_counts(), 1)
    options = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000)
    live.state = replace(live.state, recovery=options)
    for batch in range(BATCHES):
        also = {"b": counted(f"b{batch}", batch)} if batch % 4 == 0 else {}
        live.commit({"a": counted(f"a{batch}", batch, source=f"s{batch}"), **also})
        wait_for_uploads()
    pointer = live.pointer(0)
    assert pointer.base_version > 0
    assert len(pointer.snapshots) >= 2
    return live


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Live:
    return lived(tmp_path_factory.mktemp("long-lived"))


def test_the_history_goes_back_behind_snapshots(long_lived: Live, serving: Serving) -> None:
    client = serving(long_lived.home / long_lived.name)
    found = answer(client, "/api/stores/counts/history", key="a")
    assert [write["value"]["text"] for write in found["writes"]] == [f"a{batch}" for batch in reversed(range(BATCHES))]
    assert [write["version"] for write in found["writes"]] == [*range(BATCHES, 0, -1)]
    assert found["isWhole"]


def test_what_another_attempt_has_written_is_no_history(long_lived: Live, serving: Serving) -> None:
    pointer = long_lived.pointer(0)
    long_lived.run(0, lambda stores: stores["counts"].put("a", counted("not committed", 99)))
    long_lived.pointers[0] = pointer
    found = answer(serving(long_lived.home / long_lived.name), "/api/stores/counts/history", key="a")
    assert found["writes"][0]["value"]["text"] == f"a{BATCHES - 1}"


def test_changes_say_what_was_before_at_each_version(long_lived: Live, serving: Serving) -> None:
    client = serving(long_lived.home / long_lived.name)
    for batch in range(BATCHES):
        found = answer(client, f"/api/shards/0/0/versions/{batch + 1}")
        old = {change["key"]["text"]: change["old"] and change["old"]["value"]["text"] for change in found["changes"]}
        expected = {"a": f"a{batch - 1}" if batch else None}
        if batch % 4 == 0:
            expected["b"] = f"b{batch - 4}" if batch else None
        assert old == expected


def test_a_shard_is_restored_as_it_was_at_each_version(long_lived: Live) -> None:
    pointer = long_lived.pointer(0)
    for version in range(BATCHES + 1):
        found = pointer_at(pointer, version)
        assert (found is None) == (version < pointer.base_version)
        if found is not None:
            with long_lived.state.open(found) as batch:
                values = dict(batch.stores["counts"].bytes.range(None, None))
            assert values[b"a"].endswith(f"a{version - 1}".encode())


def test_what_has_vanished_is_not_said_to_be_all(serving: Serving, live: Live) -> None:
    client = serving(live.home / live.name)
    (live.home / live.name).rename(live.home / "moved")
    found = answer(client, "/api/stores/counts/history", key="alpha")
    assert (found["writes"], found["oldestVersion"], found["isWhole"]) == ([], None, False)


def test_deltas_that_were_collected_are_not_listed(tmp_path: Path, serving: Serving) -> None:
    long_lived = lived(tmp_path)
    pointer = long_lived.pointer(0)
    gone = [each for each in versions_of(long_lived.location, pointer) if each.version <= 3]
    for each in gone:
        (long_lived.home / long_lived.name / each.name).unlink()
    client = serving(long_lived.home / long_lived.name)
    found = answer(client, "/api/stores/counts/history", key="a")
    assert (found["oldestVersion"], found["isWhole"], len(found["writes"])) == (4, False, BATCHES - 3)
    answer(client, "/api/shards/0/0/versions/3", 404)
    (change,) = answer(client, "/api/shards/0/0/versions/4")["changes"]
    assert "old" not in change, "nothing tells it any more"
