"""Looks into the files of a state location."""

from __future__ import annotations

import sys
from typing import Any

from statestore.errors import DurableFileMissingError, StateStoreError
from statestore.recovery.delta import Delta, decode_delta
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import METADATA_NAME, StateMetadata, read_metadata
from statestore.recovery.shard_files import delta_directory, parse_delta_name

_SHOWN_BYTES = 40


def print_delta(file: str, limit: int) -> bool:
    """Print what the delta at path or URI `file` holds, `limit` records of it (0: all); return True.

    Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    directory, _, name = file.rpartition("/")
    delta = _read(DurableLocation(directory or "."), name)
    table = delta.table
    info = delta.info
    print(f"{file}: state {info.state_id}, shard {info.shard}, makes version {info.version}, {table.num_rows} records")
    shown = table if limit == 0 else table.slice(0, limit)
    for record in shown.to_pylist():
        headers = "  ".join(f"{header['key']}={_shown(header['value'])}" for header in record["headers"])
        value = "tombstone" if record["value"] is None else _shown(record["value"])
        line = f"{record['store']}  {_shown(record['key'])} -> {value}  timestamp {record['timestamp']}  {headers}"
        print(f"  {line.rstrip()}")
    if shown.num_rows < table.num_rows:
        print(f"  ... and {table.num_rows - shown.num_rows} more; --limit 0 shows all")
    return True


def verify_location(uri: str) -> bool:
    """Read every delta of the state at path or URI `uri`, print what was found, and return whether all can be read.

    Says nothing of what is committed: that stands in Spark's checkpoint. Raises StateStoreError if there is no state.
    """
    location = DurableLocation(uri)
    metadata = read_metadata(location)
    if metadata is None:
        raise DurableFileMissingError(location.path(METADATA_NAME), needed_by="a state location")
    stores = ", ".join(f"{spec.name} ({spec.describe()})" for spec in metadata.stores)
    print(f"{location}: state {metadata.state_id}, {metadata.shards} shards, stores: {stores}")
    damaged = [problem for shard in range(metadata.shards) for problem in _verify_shard(location, metadata, shard)]
    for problem in damaged:
        print(f"  DAMAGED {problem}")
    print(f"{len(damaged)} damaged" if damaged else "all delta files can be read")
    return not damaged


def _verify_shard(location: DurableLocation, metadata: StateMetadata, shard: int) -> list[str]:
    names = [name for name in location.names(delta_directory(shard)) if parse_delta_name(name)]
    problems, versions = [], set()
    for number, name in enumerate(names, start=1):
        try:
            info = _read(location, name).info
            if (info.state_id, info.shard) != (metadata.state_id, shard):
                problems.append(f"{location.path(name)}: it belongs to shard {info.shard} of state {info.state_id}")
            versions.add(info.version)
        except StateStoreError as error:
            problems.append(str(error))
        if number % 1000 == 0:
            print(f"  shard {shard}: {number} of {len(names)} files", file=sys.stderr)
    latest = max(versions, default=0)
    missing = sorted(set(range(1, latest + 1)) - versions)
    problems.extend(f"shard {shard}: no delta makes version {version}" for version in missing)
    print(f"  shard {shard}: {len(names)} files, versions up to {latest}")
    return problems


def _read(location: DurableLocation, name: str) -> Delta:
    data = location.read(name)
    if data is None:
        raise DurableFileMissingError(location.path(name), needed_by="this command")
    return decode_delta(data, location.path(name))


def _shown(content: Any) -> str:
    """Return bytes as text if they are printable UTF-8, else as hex; long ones are cut."""
    if content is None:
        return "null"
    cut = content[:_SHOWN_BYTES]
    more = "..." if len(content) > _SHOWN_BYTES else ""
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        return f"0x{cut.hex()}{more}"
    return f"{text}{more}" if text.isprintable() else f"0x{cut.hex()}{more}"
