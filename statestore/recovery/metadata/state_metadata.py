"""`statestore.json`: what is fixed when a query first starts on a state location.

{"format": 1 | 2, "state_id": str, "shards": int, "shard_by": "key" | "partition",
 "routing": [int, ...],                 the group key under which Spark holds each shard
 "stores": [StoreSpec as JSON, ...],
 "topology": [node as JSON, ...],       empty until the first start, if the state was made by a tool
 "wall_clock": bool,                    whether Spark's timers are in use; not there means false
 "initial_state": true,                 format 2: shards start from their initial pointers, see `pointer`
 "generation": int,                     how often this was replaced; not there means 0, as do releases without it
 "dropped": [str, ...],                 names of stores whose state was given up; not there means none
 "digest": str}                         of all that is above, see `durable_json`; older releases did not write it

Format 2 is written for a state that has initial pointers, and for no other: releases that know format 1 alone would
start such a state empty, so they must refuse it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, Final

from statestore.bytestore.kinds.store_spec import StoreSpec, older_formats
from statestore.bytestore.upgrades import is_downgrade, refuse_skipped_step
from statestore.errors import FormatError, RecoveryError, ShardCountChangedError, StoreFormatError, TopologyChangedError
from statestore.errors.new_state import TooManyShardsError
from statestore.errors.readable import shape_of
from statestore.errors.state import CheckpointLocationError, DurableFileCorruptedError, StateUnfinishedError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.location.durable_json import (
    MAX_DOCUMENT_BYTES,
    MAX_NOTE_BYTES,
    from_durable_json,
    to_durable_json,
)
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import path_part
from statestore.recovery.metadata.agreement import agree, forget_agreements, may_be_agreed

_LOG = logging.getLogger(__name__)
_FORMAT = 1
_FORMAT_WITH_INITIAL_STATE = 2
METADATA_NAME = "statestore.json"
_CHECKPOINT_DIRECTORIES = frozenset({"offsets", "commits"})
"""Every checkpoint of Spark has these, and no state does."""
UNFINISHED_NAME = "unfinished.json"
"""Marks a location that a tool is filling: see `new_state`."""
ENTRY_KEYS = "entry_keys"
"""The field of a node that says what the keys of its stores are made of, if the library makes them."""


class ShardBy(str, Enum):
    """How a record finds its shard."""

    KEY = "key"
    """By its key, as Kafka's default partitioner does: murmur2, modulo the number of shards."""
    PARTITION = "partition"
    """By the number of the partition that it comes from."""


@dataclass(frozen=True)
class StateMetadata:
    """The fixed facts of one state: shard count and placement, stores, and the topology that made it."""

    state_id: str
    shards: int
    shard_by: str
    """A `ShardBy`, by its value."""
    routing: tuple[int, ...]
    stores: tuple[StoreSpec, ...]
    topology: tuple[dict[str, Any], ...]
    wall_clock: bool = False
    initial_state: bool = False
    """Whether a shard that Spark's state does not know yet starts from `initial_pointer`, not empty."""
    generation: int = 0
    """How often what is recorded was replaced."""
    dropped: tuple[str, ...] = ()
    """Names of stores that were dropped, sorted. Files may still have entries of them, so none can come back."""
    is_recorded: bool = field(default=True, compare=False)
    """Whether the owner of the location need not record it. Not in the file."""

    @property
    def global_stores(self) -> frozenset[str]:
        """The names of the stores of which every shard holds all."""
        sources = {node["name"] for node in self.topology if node.get("global")}
        fed = (node for node in self.topology if sources.intersection(node.get("parents", ())))
        return frozenset(str(store) for node in fed for store in node.get("stores", ()))

    @property
    def entry_keys(self) -> dict[str, str]:
        """What the keys of stores are made of, by store, where the library makes them."""
        return {store: keys for node in self.topology for store, keys in node.get(ENTRY_KEYS, {}).items()}

    def to_json(self) -> str:
        """Return the content of `statestore.json`."""
        fields = {
            "format": _FORMAT_WITH_INITIAL_STATE if self.initial_state else _FORMAT,
            "state_id": self.state_id,
            "shards": self.shards,
            "shard_by": self.shard_by,
            "routing": self.routing,
            "stores": [spec.to_json() for spec in self.stores],
            "topology": self.topology,
            "wall_clock": self.wall_clock,
            **({"initial_state": True} if self.initial_state else {}),
            **({"generation": self.generation} if self.generation else {}),
            **({"dropped": self.dropped} if self.dropped else {}),
        }
        return to_durable_json(fields, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: bytes, where: str) -> StateMetadata:
        """Return what `to_json` gave. Raises DurableFileCorruptedError."""
        try:
            fields = from_durable_json(text)
            if fields["format"] not in (_FORMAT, _FORMAT_WITH_INITIAL_STATE):
                raise FormatError("state metadata", f"format {fields['format']!r}; this release knows 1 and 2")
            initial_state = fields.get("initial_state", False)
            if (initial_state is True) != (fields["format"] == _FORMAT_WITH_INITIAL_STATE):
                raise FormatError("state metadata", f"format {fields['format']!r} with initial_state {initial_state!r}")
            return cls(
                path_part(fields["state_id"]),
                whole_number(fields["shards"], 1),
                ShardBy(fields["shard_by"]).value,
                tuple(whole_number(route, 0) for route in fields["routing"]),
                tuple(StoreSpec.from_json(spec) for spec in fields["stores"]),
                tuple(_node(node) for node in fields["topology"]),
                fields.get("wall_clock", False) is True,
                initial_state is True,
                whole_number(fields.get("generation", 0), 0),
                _names(fields.get("dropped", [])),
            )
        except (*MALFORMED, FormatError) as cause:
            raise DurableFileCorruptedError(where, cause=f"is not readable state metadata ({cause!r})") from cause


def _names(fields: Any) -> tuple[str, ...]:
    if not isinstance(fields, list) or not all(isinstance(name, str) for name in fields):
        raise ValueError(f"dropped must be a list of names, not {shape_of(fields)}")
    return tuple(fields)


def _node(fields: Any) -> dict[str, Any]:
    """Return a node of the topology, of which name, parents, stores and keys are checked. Raises ValueError."""
    node = dict(fields)
    for name in ("parents", "stores"):
        if not isinstance(node.get(name, []), list):
            raise ValueError(f"{name} of a node must be a list, not {node[name]!r}")
    if not isinstance(node.get(ENTRY_KEYS, {}), dict):
        raise ValueError(f"{ENTRY_KEYS} of a node must be an object, not {node[ENTRY_KEYS]!r}")
    if not isinstance(node["name"], str):
        raise ValueError(f"the name of a node must be text, not {node['name']!r}")
    return node


def read_metadata(location: DurableLocation) -> StateMetadata | None:
    """Return the metadata of the state in `location`, None if there is no state yet."""
    data = location.read(METADATA_NAME, MAX_DOCUMENT_BYTES)
    return None if data is None else StateMetadata.from_json(data.to_pybytes(), location.path(METADATA_NAME))


def stage_name(number: int) -> str:
    """Return the directory of a stage, from 0 on, of a query that has several, below its state location."""
    return f"stage-{number}"


def stage_of(location: str) -> str | None:
    """Return the directory of a stage that a location is; None if it is not a stage's."""
    directory = location.rstrip("/").rpartition("/")[2]
    number = directory.rpartition("-")[2]
    return directory if number.isdecimal() and directory == stage_name(int(number)) else None


def states_at(location: DurableLocation) -> list[tuple[DurableLocation, StateMetadata]]:
    """Return the states of a query's stages in their order; one is the location itself. Empty if there is no state."""
    metadata = read_metadata(location)
    if metadata is not None:
        return [(location, metadata)]
    found: list[tuple[DurableLocation, StateMetadata]] = []
    while (metadata := read_metadata(stage := location.below(stage_name(len(found))))) is not None:
        found.append((stage, metadata))
    return found


def state_with(location: DurableLocation, store: str | None) -> tuple[DurableLocation, StateMetadata] | None:
    """Return the state at a location, and of several stages the one that has a store; None if there is no state.

    Raises RecoveryError if there are stages, and no store is named or none has it.
    """
    found = states_at(location)
    if len(found) < 2:
        return found[0] if found else None
    names = [[spec.name for spec in metadata.stores] for _, metadata in found]
    for state, known in zip(found, names, strict=True):
        if store in known:
            return state
    stages = "; ".join(f"{stage_name(number)}: {', '.join(known) or 'none'}" for number, known in enumerate(names))
    asked = "no store was named" if store is None else f"none has a store {store!r}"
    raise RecoveryError(str(location), f"the state has stages, and {asked}. Name a store, or a stage's path ({stages})")


def refuse_other_stages(location: DurableLocation, stages: int) -> None:
    """Raise TopologyChangedError if the state at a location is of a query with another number of stages."""
    recorded = len(states_at(location))
    if recorded not in (0, stages):
        raise TopologyChangedError(
            str(location),
            differences=[f"the program has {stages} stages, and the state is of {recorded}"],
            remedy="Keys are divided anew elsewhere than before: undo the change, or start anew with a new "
            "state_location and a new checkpoint",
        )


def agree_on_states(
    asked: Sequence[tuple[DurableLocation, StateMetadata]],
    *,
    accept_topology_change: bool | Collection[str] = False,
    is_owner: bool = True,
) -> list[StateMetadata]:
    """Return the metadata to run with of each of a query's stages, in their order. Raises as `agree_on_metadata` does.

    The first stage is recorded last: where it is recorded, all are. At the first start on states that a tool made, a
    stage with stores that has none is a changed topology.
    """
    if len(asked) > 1 and accept_topology_change is not True:
        _refuse_forgotten_stages(asked)
    agree_on = partial(agree_on_metadata, accept_topology_change=accept_topology_change, is_owner=is_owner)
    return [agree_on(*each) for each in reversed(asked)][::-1]


def _refuse_forgotten_stages(asked: Sequence[tuple[DurableLocation, StateMetadata]]) -> None:
    recorded = [read_metadata(location) for location, _ in asked]
    is_made = [found is not None and found.initial_state and not found.topology for found in recorded]
    forgotten = [
        stage_name(number)
        for number, (found, (_, new)) in enumerate(zip(recorded, asked, strict=True))
        if found is None and new.stores
    ]
    if any(is_made) and forgotten:
        made = [stage_name(number) for number, by_tool in enumerate(is_made) if by_tool]
        raise TopologyChangedError(
            str(asked[-1][0]),
            differences=[f"a tool made the state of {', '.join(made)}, and none of {', '.join(forgotten)}"],
            remedy="Make it, too, from what the others were made of; or have it begin empty, with "
            "accept_topology_change=True",
        )


def agree_on_metadata(
    location: DurableLocation,
    asked: StateMetadata,
    *,
    accept_topology_change: bool | Collection[str] = False,
    is_owner: bool = True,
) -> StateMetadata:
    """Return the metadata to run with: `asked`, recorded, at the first start, else what is recorded.

    The first start on a state that a tool made takes its identity, shards and stores, and records the rest. A later one
    records newer formats of stores, and keys of a node's stores if they are missing. `accept_topology_change` allows
    new nodes and stores, and drops the stores that it names. Of starts at the same time one records. Who may not be the
    owner (see `claim`) changes nothing that a query has started on, and gets what the owner is to record.
    Raises LocationNotWritableError, LocationBusyError, StateUnfinishedError, ShardCountChangedError, StoreFormatError,
    TopologyChangedError.
    """
    is_writable = False
    while True:
        recorded = read_metadata(location)
        generation = 0 if recorded is None else recorded.generation + 1
        if recorded is not None and may_be_agreed(location, generation):
            # What is recorded may be out of date: a slow start may have recorded again what came before. So this asks
            # for what was accepted, and for nothing new.
            wanted = recorded
        else:
            wanted = _metadata_to_record(location, recorded, asked, accept_topology_change=accept_topology_change)
            if wanted == recorded or (recorded is not None and recorded.topology and not is_owner):
                if not is_writable:
                    location.check_writable()
                return replace(wanted, is_recorded=wanted == recorded)
        content = replace(wanted, generation=generation).to_json().encode()
        agreed = agree(location, generation, content, partial(_is_changed, location, recorded))
        # If it was recorded meanwhile, or is what another start asked for, the next round checks it like any other.
        if agreed is not None:
            location.write(METADATA_NAME, agreed)
            is_writable = True
            forget_agreements(location, generation)


def _is_changed(location: DurableLocation, recorded: StateMetadata | None) -> bool:
    # The mark is read first: it goes when the metadata is there.
    unfinished = location.read(UNFINISHED_NAME, MAX_NOTE_BYTES) if recorded is None else None
    found = read_metadata(location)
    if found is None and unfinished is not None:
        _refuse_unfinished(location)
    return found != recorded


def _metadata_to_record(
    location: DurableLocation,
    recorded: StateMetadata | None,
    asked: StateMetadata,
    *,
    accept_topology_change: bool | Collection[str],
) -> StateMetadata:
    if recorded is None:
        _refuse_unfinished(location)
        if {*location.directories("")} >= _CHECKPOINT_DIRECTORIES:
            raise CheckpointLocationError(str(location), checkpoint=str(location), relation="is also")
        return asked
    _check_placement(location, recorded, asked)
    dropped = _dropped_stores(location, recorded, asked, accept_topology_change)
    changed = replace(recorded, stores=asked.stores, topology=asked.topology, dropped=dropped)
    if not recorded.topology:
        # Made by a tool, which knows stores only. Spark has no state yet, so nothing depends on the rest.
        _check_stores(location, recorded, asked)
        added = {spec.name for spec in asked.stores} - {spec.name for spec in recorded.stores}
        if added:
            _LOG.warning("%s: a tool made this state without the stores %s: they begin empty", location, sorted(added))
        return replace(changed, routing=asked.routing, wall_clock=asked.wall_clock)
    if asked.wall_clock and not recorded.wall_clock:
        # Spark fixes whether an operator has timers at the first start. One that has them can do without.
        raise TopologyChangedError(
            str(location),
            differences=["a processor schedules punctuation by the wall clock, and none did at the first start"],
            remedy="Spark can't give timers to a query that started without: use STREAM_TIME, or start anew with a new "
            "state_location and a new checkpoint",
        )
    _check_stores(location, recorded, asked)
    differences = _differences(recorded, asked)
    if not differences and recorded.stores == asked.stores and recorded.topology == asked.topology:
        return recorded
    if differences and not accept_topology_change:
        raise TopologyChangedError(
            str(location),
            differences=differences,
            remedy="Undo the change, or accept it with accept_topology_change=True (state is kept, added stores start "
            "empty), or start anew with a new state_location and a new checkpoint",
        )
    return changed


def metadata_of_stores(stores: Iterable[StoreSpec], shards: int, shard_by: str) -> StateMetadata:
    """Return the metadata of a new state of which only the stores are known. Raises TooManyShardsError."""
    refuse_too_many_shards(shards)
    specs, routing = tuple(sorted(stores, key=lambda spec: spec.name)), routing_numbers(shards, shards)
    return StateMetadata(new_state_id(), shards, shard_by, routing, specs, topology=(), initial_state=True)


def new_state_id() -> str:
    """Return an identity for a new state, different from every other."""
    return uuid.uuid4().hex


def _refuse_unfinished(location: DurableLocation) -> None:
    data = location.read(UNFINISHED_NAME, MAX_NOTE_BYTES)
    if data is None:
        return
    try:
        made_from = str(from_durable_json(data)["from"])
    except MALFORMED:
        made_from = "something that can't be read"
    raise StateUnfinishedError(str(location), made_from=made_from)


def _check_placement(location: DurableLocation, recorded: StateMetadata, asked: StateMetadata) -> None:
    if recorded.shards != asked.shards:
        raise ShardCountChangedError(str(location), recorded=recorded.shards, asked=asked.shards)
    if recorded.shard_by != asked.shard_by:
        raise TopologyChangedError(
            str(location),
            differences=[f"records were placed by {recorded.shard_by}, now by {asked.shard_by}"],
            remedy=f'Start with shard_by="{recorded.shard_by}", or with a new state_location and a new checkpoint',
        )


def _dropped_stores(
    location: DurableLocation, recorded: StateMetadata, asked: StateMetadata, accepted: bool | Collection[str]
) -> tuple[str, ...]:
    """Return the names of all dropped stores. Raises TopologyChangedError unless `accepted` names the new ones."""
    names = {spec.name for spec in asked.stores}
    refuse_dropped(location, recorded, names)
    gone = [spec for spec in recorded.stores if spec.name not in names]
    may_go = () if isinstance(accepted, bool) else accepted
    if not all(spec.name in may_go for spec in gone):
        raise TopologyChangedError(
            str(location),
            differences=[f"store {spec.name!r} ({spec.describe()}) is gone" for spec in gone],
            remedy="Put it back; or, to give up all that it holds, start with "
            f"accept_topology_change={[spec.name for spec in gone]}",
        )
    if gone:
        _LOG.warning("%s: the stores %s are dropped with all that they hold", location, [spec.name for spec in gone])
    return tuple(sorted({*recorded.dropped, *(spec.name for spec in gone)}))


def refuse_dropped(location: DurableLocation, recorded: StateMetadata, stores: Collection[str]) -> None:
    """Raise TopologyChangedError if one of these stores was dropped."""
    if back := sorted({*stores}.intersection(recorded.dropped)):
        raise TopologyChangedError(
            str(location),
            differences=[f"store {name!r} was dropped, and is back" for name in back],
            remedy="Files may still have entries from before: give the store another name",
        )


def _check_stores(location: DurableLocation, recorded: StateMetadata, asked: StateMetadata) -> None:
    wanted = {spec.name: spec for spec in asked.stores}
    for spec in recorded.stores:
        now = wanted.get(spec.name)
        if now is None:
            continue  # it is dropped
        # A store can go on if only its format differs, and is newer. Its index is made anew.
        spec = replace(spec, indexed_headers=now.indexed_headers)
        is_upgrade = spec.format in older_formats(now.kind, now.format) and replace(spec, format=now.format) == now
        if now != spec and not is_upgrade:
            remedy = "Use the builder it was made with, or start anew with a new state_location and a new checkpoint"
            if is_downgrade(spec, now):
                remedy += (
                    f"; or start so on what `upgrade-tools downgrade {location} TARGET --to {now.format.describe()} "
                    f"--store {now.name} --pointers FILE` makes of it"
                )
            raise StoreFormatError(
                spec.name, recorded=spec.describe(), asked=now.describe(), where=str(location), remedy=remedy
            )
        refuse_skipped_step(spec.format, now, str(location), spec.name)


def _differences(recorded: StateMetadata, asked: StateMetadata) -> list[str]:
    before = {str(node["name"]): node for node in recorded.topology}
    for node in asked.topology:
        known_before = before.get(str(node["name"]))
        if known_before is not None and ENTRY_KEYS not in known_before and ENTRY_KEYS in node:
            # An older release did not record it, but it was so all along.
            before[str(node["name"])] = {**known_before, ENTRY_KEYS: node[ENTRY_KEYS]}
    after = {str(node["name"]): node for node in asked.topology}
    known = {spec.name for spec in recorded.stores}
    return [
        *(f"{before[name]['type']} {name!r} is gone" for name in before if name not in after),
        *(f"{after[name]['type']} {name!r} is new" for name in after if name not in before),
        *(
            f"{name!r} was {before[name]}, is {after[name]}"
            for name in after
            if after[name] != before.get(name, after[name])
        ),
        *(f"store {spec.name!r} is new" for spec in asked.stores if spec.name not in known),
    ]


MAX_SHARDS: Final = 100_000
"""How many shards a state may have: a number for each is found by trying, and recorded in the metadata."""
_SPARK_SEED = 42
_MASK = 0xFFFFFFFF


def routing_numbers(shards: int, partitions: int) -> tuple[int, ...]:
    """Return one distinct group key for each shard, such that shard s goes to partition `s % partitions`.

    Spark places a group by Murmur3 of its key, modulo the number of state partitions. Small consecutive numbers collide
    there and leave partitions idle. They are found once and recorded: later starts must look under the same keys.
    """
    if shards < 1 or partitions < 1:
        raise ValueError(f"shards and partitions must be at least 1, not {shards} and {partitions}")
    waiting: dict[int, list[int]] = {}
    for shard in reversed(range(shards)):
        waiting.setdefault(shard % partitions, []).append(shard)
    numbers = [0] * shards
    for number in count():
        shards_of_partition = waiting.get(spark_hash(number) % partitions)
        if shards_of_partition:
            numbers[shards_of_partition.pop()] = number
            if not any(waiting.values()):
                return tuple(numbers)
    raise AssertionError("unreachable")


def refuse_too_many_shards(shards: int) -> None:
    """Raise TooManyShardsError for more than MAX_SHARDS, whose numbers take too long to find."""
    if shards > MAX_SHARDS:
        raise TooManyShardsError(shards=shards, limit=MAX_SHARDS)


def spark_hash(number: int) -> int:
    """Return Spark SQL's `hash(cast(number as int))`, signed. Source: Murmur3_x86_32.hashInt."""
    k1 = (_rotate_left((number & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593) & _MASK
    h1 = (_rotate_left(_SPARK_SEED ^ k1, 13) * 5 + 0xE6546B64) & _MASK
    h1 ^= 4  # the length of an int
    h1 = ((h1 ^ (h1 >> 16)) * 0x85EBCA6B) & _MASK
    h1 = ((h1 ^ (h1 >> 13)) * 0xC2B2AE35) & _MASK
    h1 ^= h1 >> 16
    return h1 - (1 << 32) if h1 >> 31 else h1


def _rotate_left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _MASK
