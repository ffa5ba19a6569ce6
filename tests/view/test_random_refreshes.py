"""Random stories of a query and of views that follow it: each view shows one batch, whole, whatever happened before."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from statestore.errors import VersionCollectedError
from statestore.recovery.local import local_copy
from statestore.recovery.local.local_copy import LocalCopy
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.view import StateView
from tests.support.recovery.shards import wait_for_uploads
from tests.support.view.counts import AS_COUNTS, COUNTS, put
from tests.support.view.written_state import WrittenState

SHARDS, STEPS, KEYS = 3, 60, "abcdefghij"
RETAINED = 2
Entries = dict[str, int]


class Story:
    """A query that commits batches and goes back to older checkpoints, and a view that looks now and then."""

    def __init__(self, home: Path, random: Random) -> None:
        recovery = RecoveryOptions(snapshot_every_deltas=2, retained_versions=RETAINED, snapshot_budget_ms=60_000)
        self.state = WrittenState(home, COUNTS, shards=SHARDS, recovery=recovery)
        self.random = random
        self.now: Entries = {}
        self.checkpoints: list[tuple[list[Any], Entries]] = []
        self.published: dict[tuple[str, int], Entries] = {}
        self.said: list[str] = []
        self.commit()
        self.view = self.new_view()

    def new_view(self) -> StateView:
        return StateView(self.state.location, local_dir=self.state.home / "views", max_open_shards=2)

    def commit(self) -> None:
        self.checkpoints.append((list(self.state.pointers), dict(self.now)))
        changes = {key: self.random.choice([None, *range(9)]) for key in self.random.sample(KEYS, 4)}
        head = self.state.batch(put(SHARDS, **changes))
        wait_for_uploads()
        self.now = {key: count for key, count in {**self.now, **changes}.items() if count is not None}
        self.published[head.run, head.batch] = dict(self.now)

    def go_back(self) -> None:
        pointers, self.now = self.random.choice(self.checkpoints[-RETAINED:])
        self.state.restart(pointers)
        self.commit()

    def refresh(self) -> None:
        self.view.refresh()
        assert self.view.head == self.state.head

    def look(self) -> None:
        head = self.view.head
        assert head is not None
        wanted = self.published[head.run, head.batch]
        counts = self.view.store("counts", **AS_COUNTS)
        try:
            key = self.random.choice(KEYS)
            assert counts.get(key) == wanted.get(key)
            assert dict(counts.all()) == wanted
        except VersionCollectedError:
            self.said.append("collected")
            self.refresh()
            assert dict(counts.all()) == self.now

    def restart(self) -> None:
        self.view.close()
        self.view = self.new_view()

    def kill(self) -> None:
        """Start again on copies whose last changes are on the disk, and nothing says which."""

        def flush_alone(copy: LocalCopy) -> None:
            copy.database.close()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local_copy, "_close", flush_alone)
            self.view.close()
        self.view = self.new_view()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_view_shows_one_batch_whatever_happens(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    story = Story(tmp_path, random)
    for _ in range(STEPS):
        step = random.choice(
            [story.commit] * 4 + [story.refresh, story.look] * 4 + [story.go_back, story.restart, story.kill]
        )
        step()
    story.refresh()
    assert dict(story.view.store("counts", **AS_COUNTS).all()) == story.now
    story.view.close()
