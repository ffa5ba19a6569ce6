"""What a rescaling says of itself: how far it is, and what it has made."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeAlias

_LOG = logging.getLogger(__name__)
_PROGRESS_EVERY_S, _LOGGED_EVERY_S = 1.0, 10.0


class RescaleProgress(NamedTuple):
    """How far one of the phases, "reading" and "checking", is."""

    phase: str
    shards_done: int
    shards: int
    entries: int
    """In all shards so far."""
    elapsed_s: float

    @property
    def entries_per_s(self) -> float:
        """The mean rate so far."""
        return self.entries / self.elapsed_s if self.elapsed_s else 0.0

    def __str__(self) -> str:
        return (
            f"{self.phase}: {self.shards_done} of {self.shards} shards, {self.entries:,} entries, "
            f"{self.entries_per_s:,.0f}/s"
        )


OnProgress: TypeAlias = Callable[[RescaleProgress], None]


class Meter:
    """Counts entries and shards, and tells now and then."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._log_next_s = self._tell_next_s = 0.0
        self.begin("reading", 0)

    def begin(self, phase: str, shards: int) -> None:
        """Begin a phase of so many shards."""
        self._phase, self._shards = phase, shards
        self._shards_done = self._entries = 0
        self._started_s = time.monotonic()
        self._log_next_s = self._started_s + _LOGGED_EVERY_S

    def add(self, entries: int) -> None:
        """Count entries."""
        self._entries += entries
        now_s = time.monotonic()
        if now_s >= self._tell_next_s:
            self._tell(now_s)

    def shard_done(self) -> None:
        """Count a shard, and tell."""
        self._shards_done += 1
        self._tell(time.monotonic())

    def _tell(self, now_s: float) -> None:
        self._tell_next_s = now_s + _PROGRESS_EVERY_S
        progress = RescaleProgress(self._phase, self._shards_done, self._shards, self._entries, now_s - self._started_s)
        if now_s >= self._log_next_s:
            self._log_next_s = now_s + _LOGGED_EVERY_S
            _LOG.info("rescaling: %s", progress)
        if self._on_progress is not None:
            self._on_progress(progress)


class StoreReport(NamedTuple):
    """What a store has in each new shard: entries (of a versioned store its puts), and bytes of keys and values."""

    entries: tuple[int, ...]
    size_bytes: tuple[int, ...]


@dataclass(frozen=True)
class RescaleReport:
    """What was made of a state; after a dry run `state_id` is None, and it says what would be."""

    from_state_id: str
    from_shards: int
    state_id: str | None
    shards: int
    stores: Mapping[str, StoreReport]
    deltas: int
    elapsed_s: float

    def to_json(self) -> str:
        """Return it as `from_json` takes it: to send it to another process, not to keep it."""
        return json.dumps({**asdict(self), "stores": {name: list(store) for name, store in self.stores.items()}})

    @classmethod
    def from_json(cls, text: str) -> RescaleReport:
        """Return what `to_json` gave."""
        fields = json.loads(text)
        stores = {name: StoreReport(*map(tuple, report)) for name, report in fields.pop("stores").items()}
        return cls(**fields, stores=stores)

    @property
    def entries(self) -> int:
        """How many entries there are in all shards."""
        return sum(sum(store.entries) for store in self.stores.values())

    @property
    def size_bytes(self) -> tuple[int, ...]:
        """The bytes of keys and values in each new shard."""
        return tuple(sum(store.size_bytes[shard] for store in self.stores.values()) for shard in range(self.shards))

    @property
    def skew(self) -> float:
        """The largest shard's size over the mean; 1.0 is even, and so is an empty state."""
        sizes = self.size_bytes
        return max(sizes) * self.shards / sum(sizes) if sum(sizes) else 1.0

    def __str__(self) -> str:
        made = "dry run, nothing was written" if self.state_id is None else f"state {self.state_id}, checked"
        lines = [
            f"{self.from_shards} shards to {self.shards}: {made}; {self.entries:,} entries, largest shard "
            f"{self.skew:.2f} x the mean, {self.elapsed_s:.1f} s"
        ]
        for shard, size_bytes in enumerate(self.size_bytes):
            counts = ", ".join(f"{name} {store.entries[shard]:,}" for name, store in self.stores.items())
            lines.append(f"  shard {shard}: {size_bytes:,} bytes; {counts}")
        return "\n".join(lines)
