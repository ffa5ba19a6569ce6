"""A program of two or three stages, what comes in, and what it means: worked out from all that came, without our code.

    in ──> totals by key ──> sums of totals by group      stages 0 and 1
                └──> joined with rates, by foreign key     0, 1 and 2: the last one has a copy of the totals

Without totals the first stage keeps nothing: it sends what comes on by group, where it is added up.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

from statestore import Serdes
from statestore.dsl import Materialized, StreamsBuilder
from statestore.headers.topic_columns import SourceFields
from statestore.processor.stages import TopologyStage, stages_of
from tests.simulation.workload import BATCH_MS, KEYS_BY_HASH, batch_number, place

TOTALS, GROUPS, RATES, JOINED = "totals", "groups", "rates", "joined"
STORES: Final = ((GROUPS,), (GROUPS, TOTALS), (GROUPS, JOINED, RATES, TOTALS))
"""What there are programs for."""
RATE_KEYS: Final = (b"r0", b"r1", b"r2")
SUBSCRIPTIONS: Final = "SUBSCRIPTION-STATE-STORE"
"""Part of the name of the store of subscriptions."""
_TEXT, _INT64 = Serdes.string(), Serdes.int64()


def total(key: str, value: int, before: int) -> int | None:
    """Return the total of a key after one more value: it tells in which order they came."""
    return None if value < 0 else (before * 31 + value) % 1_000_003


def group_of(number: int) -> str:
    """Return the group that a total, or a value, is in."""
    return f"g{number // 3 % 3}"


def rate_of(number: int) -> str:
    """Return the key of the rate that a total is joined with."""
    return f"r{number % 3}"


def joined(number: int, rate: int) -> int:
    """Return a result of the join."""
    return number * 1000 + rate


@cache
def stages(stores: tuple[str, ...], *, in_memory: bool = False) -> tuple[TopologyStage, ...]:
    """Return the stages of the program that keeps these stores."""

    def kept(name: str) -> Materialized:
        made = Materialized.as_(name).with_value_serde(_INT64)
        return made.with_store_in_memory() if in_memory else made

    builder, serdes = StreamsBuilder(), {"key_serde": _TEXT, "value_serde": _INT64}
    came = builder.stream("in", **serdes)
    if TOTALS in stores:
        totals = came.group_by_key().aggregate(lambda: 0, total, materialized=kept(TOTALS))
        totals.to_stream().to(TOTALS)
        grouped = totals.group_by(lambda _, number: (group_of(number), number), **serdes, name="groups")
        grouped.sum(materialized=kept(GROUPS)).to_stream().to(GROUPS)
    else:
        by_group = came.group_by(lambda _, value: group_of(value), key_serde=_TEXT, name="groups")
        by_group.sum(materialized=kept(GROUPS)).to_stream().to(GROUPS)  # in columns, from the source to the sink
    if JOINED in stores:
        rates = builder.table("rates", **serdes, materialized=kept(RATES))
        results = totals.join(
            rates,
            joined,
            foreign_key=lambda _, number: rate_of(number),
            value_serde=_INT64,
            materialized=kept(JOINED),
        )
        results.to_stream().to(JOINED)
    return stages_of(builder.build())


class Given(NamedTuple):
    """A record that comes in."""

    topic: str
    key: bytes
    value: int | None
    time_ms: int
    offset: int

    def fields(self, added: int) -> SourceFields:
        """Return the record as a source has it; `added` is what an attempt makes of it."""
        value = None if self.value is None else _INT64.serialize(self.value + added)
        return self.topic, self.key[-1] % 2, self.offset, self.time_ms, self.key, value, b"\0"


@cache
def given(seed: int, stores: tuple[str, ...], keys: int, batch: str) -> tuple[Given, ...]:
    """Return what a batch reads, which may be nothing."""
    rng, number = random.Random(f"{seed} {batch}"), batch_number(batch)
    found: list[Given] = []
    for _ in range(rng.choice((0, 1, 2, 4, 8, 12))):
        time_ms = max(0, BATCH_MS * number + rng.choice((0, 0, -20, 10, 50)))
        at = time_ms, 1000 * number + len(found)
        if JOINED in stores and rng.random() < 0.3:
            found.append(Given("rates", rng.choice(RATE_KEYS), rng.choice((None, *range(3))), *at))
        else:
            value = rng.choice((None, -1_000_000, *range(0, 900, 100))) if TOTALS in stores else rng.randrange(900)
            found.append(Given("in", rng.choice(KEYS_BY_HASH[:keys]), value, *at))
    return tuple(found)


@dataclass(frozen=True)
class Model:
    """What the program has made of all that came."""

    totals: Mapping[bytes, int] = field(default_factory=dict)
    rates: Mapping[bytes, int] = field(default_factory=dict)
    added: Mapping[bytes, int] = field(default_factory=dict)
    """Of a program without totals: the sums by group."""
    seen: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict)
    """The totals that each key has had."""

    def after(self, came: Sequence[Given], added: Mapping[int, int], stores: tuple[str, ...], shards: int) -> Model:
        """Return what is there after one more batch; `added` is what each shard of the first stage adds to values."""
        totals, rates, sums, seen = dict(self.totals), dict(self.rates), dict(self.added), dict(self.seen)
        for topic, key, value, _, _ in came:
            if topic == "rates":
                _put(rates, key, value)
            elif value is not None:
                value += added.get(place(key, shards), 0)
                if TOTALS not in stores:
                    group = group_of(value).encode()
                    sums[group] = sums.get(group, 0) + value
                    continue
                number = total("", value, totals.get(key, 0))
                _put(totals, key, number)
                if number is not None:
                    seen[key] = (*seen.get(key, ()), number)
        return replace(self, totals=totals, rates=rates, added=sums, seen=seen)

    @property
    def groups(self) -> dict[bytes, int]:
        """The sums by group."""
        sums = dict(self.added)
        for number in self.totals.values():
            group = group_of(number).encode()
            sums[group] = sums.get(group, 0) + number
        return _without_nothing(sums)

    @property
    def joined(self) -> dict[bytes, int]:
        """The results of the join."""
        known = {key: self.rates.get(rate_of(number).encode()) for key, number in self.totals.items()}
        return {key: joined(self.totals[key], rate) for key, rate in known.items() if rate is not None}

    @property
    def subscriptions(self) -> dict[bytes, int]:
        """The places of subscriptions: the size of the rate's key, that key, and the key of the total."""
        keys = {key: rate_of(number).encode() for key, number in self.totals.items()}
        return {len(rate).to_bytes(4, "big") + rate + key: 1 for key, rate in keys.items()}

    def content(self, names: Sequence[str], shard: int, shards: int) -> dict[str, dict[bytes, int]]:
        """Return what stores of a stage must hold in a shard of so many."""
        found: dict[str, dict[bytes, int]] = {}
        for name in names:
            if SUBSCRIPTIONS in name:
                found[name] = {key: one for key, one in self.subscriptions.items() if place(key[4:6], shards) == shard}
            else:
                found[name] = _of_shard(getattr(self, name), shard, shards)
        return found

    def wrong_output(
        self, put_out: Sequence[tuple[str, bytes, int | None]], began: Model, shard: int, shards: int
    ) -> str | None:
        """Return what is wrong with all that sinks were sent through a shard of the last stage, since a query `began`.

        None if nothing is.
        """
        last = {GROUPS: began.groups, JOINED: began.joined}
        seen = dict(began.seen)
        for topic, key, value in put_out:
            if topic in last:
                _put(last[topic], key, value)
            elif value is not None:
                seen[key] = (*seen.get(key, ()), value)
        expected: dict[str, Any] = {TOTALS: self.seen, GROUPS: self.groups, JOINED: self.joined}
        for topic, found in ((TOTALS, seen), (GROUPS, _without_nothing(last[GROUPS])), (JOINED, last[JOINED])):
            wanted = _of_shard(expected[topic], shard, shards)
            if _of_shard(found, shard, shards) != wanted:
                return f"{topic}: expected {wanted}, found {found}"
        return None


def shown(name: str, pairs: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """Return what `Model.content` says of a store, as it is found in bytes: a value is what they end with."""
    if SUBSCRIPTIONS in name:
        return dict.fromkeys(pairs, 1)
    found = {key: int.from_bytes(data[-8:], "big", signed=True) for key, data in pairs.items()}
    return _without_nothing(found) if name == GROUPS else found


def _without_nothing(sums: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return sums without those of 0: whether they are kept depends on what came in between."""
    return {key: value for key, value in sums.items() if value}


def _of_shard(table: Mapping[bytes, Any], shard: int, shards: int) -> dict[bytes, Any]:
    return {key: value for key, value in table.items() if place(key, shards) == shard}


def _put(table: dict[bytes, int], key: bytes, value: int | None) -> None:
    table.pop(key, None)
    if value is not None:
        table[key] = value
