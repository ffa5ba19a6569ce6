"""No object is deleted whose claim anybody can still read: a model of topics, state and time, beside real objects."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statestore import Headers
from statestore.middleware import Chain
from statestore.middleware.size.claim_check import CLAIM_CHECK_HEADER, ClaimCheck, delete_objects
from tests.support.passed_records import arrived, produced

RETENTION_MS = {"in": 100, "out": 250, "dead": 400}
ON_THE_WAY_MS = 30
"""How long a record may take from its chain into its topic, where its retention begins."""


class World:
    """Topics that forget, a state, and a clock that also says when objects were written."""

    def __init__(self, home: Path, random: Random) -> None:
        self.check = ClaimCheck(home, threshold_bytes=4, lazy=True)
        self.chain = Chain([self.check])
        self.now_ms = 1_000_000
        self.topics: dict[str, list[tuple[int, Headers]]] = {topic: [] for topic in RETENTION_MS}
        self.state: dict[int, Headers] = {}
        self._home = home
        self._random = random
        self._written: dict[Path, int] = {}
        self.gather()

    def send(self, topic: str, value: bytes, headers: Any = ()) -> None:
        for sent in self.chain.emit(produced(b"k", value, headers, topic)):
            assert sent.value == b""
            self.topics[topic].append((self.now_ms + self._random.choice((0, ON_THE_WAY_MS)), sent.headers))
        for path in self._home.rglob("objects/*/*"):
            if path.stat().st_mtime_ns != self._written.get(path):  # it was written anew
                os.utime(path, ns=(self.now_ms * 1_000_000,) * 2)
                self._written[path] = path.stat().st_mtime_ns

    def new(self) -> None:
        self.send("in", b"value %d" % self._random.randrange(30))

    def forward(self) -> None:
        for headers in self._some("in"):
            (read,) = self.chain.ingest(arrived(produced(b"k", b"", headers, "in")))
            self.send("out", read.value or b"", read.headers)

    def hold(self) -> None:
        for headers in self._some("in"):
            self.state[self._random.randrange(3)] = headers.copy()

    def put_out(self) -> None:
        for headers in [self.state.pop(key) for key in self._random.sample(sorted(self.state), len(self.state) // 2)]:
            self.send("out", b"", headers)

    def forget(self) -> None:
        if self.state:
            del self.state[self._random.choice(sorted(self.state))]

    def dead_letter(self) -> None:
        for headers in self._some("in"):
            self.topics["dead"].append((self.now_ms, headers.copy()))  # as it came, through no chain

    def wait(self) -> None:
        self.now_ms += self._random.choice((1, 25, 240))

    def gather(self) -> None:
        """Look at what may be deleted: later, when more has happened."""
        self._before_ms = self.now_ms - ON_THE_WAY_MS - max(RETENTION_MS["in"], RETENTION_MS["out"])
        self._live = [_claim(headers) for headers in (*self.state.values(), *self.readable("dead"))]

    def gather_and_delete(self) -> None:
        self.gather()
        self.delete()

    def delete(self) -> None:
        delete_objects(self.check.location, self._before_ms, live=self._live)
        self._written = {path: written for path, written in self._written.items() if path.exists()}

    def readable(self, topic: str) -> list[Headers]:
        oldest_ms = self.now_ms - RETENTION_MS[topic]
        return [headers for written_ms, headers in self.topics[topic] if oldest_ms <= written_ms <= self.now_ms]

    def check_all(self) -> None:
        for headers in [*self.state.values(), *(one for topic in self.topics for one in self.readable(topic))]:
            assert self.check.fetch(headers).startswith(b"value ")

    def _some(self, topic: str) -> list[Headers]:
        readable = self.readable(topic)
        return self._random.sample(readable, min(2, len(readable)))


def _claim(headers: Headers) -> bytes:
    header = headers.last_header(CLAIM_CHECK_HEADER)
    assert header is not None
    assert header.value is not None
    return header.value


@pytest.mark.parametrize("seed", range(12))
def test_every_claim_that_can_be_read_resolves_whatever_happens(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    world = World(tmp_path, random)
    acts: list[Callable[[], None]] = [
        *(world.new, world.forward, world.hold, world.put_out, world.forget, world.dead_letter),
        *(world.wait, world.gather, world.delete, world.gather_and_delete),
    ]
    for _ in range(150):
        random.choice(acts)()
        world.check_all()
    world.state.clear()
    world.now_ms += 1000
    world.gather_and_delete()
    assert list(tmp_path.rglob("objects/*/*")) == [], "what nobody can read is deleted"
