"""Names of a shard's files in the durable location. The one owner of them.

Names that come from files, which anybody may have changed, and become part of a path are checked here; those of stores
follow Kafka's rule: `bytestore.kinds.store_spec`.

    shards/NNNN/deltas/VERSION-EPOCH-ATTEMPT.arrow        what VERSION changed
    shards/NNNN/deltas/EPOCH-RUN.fence                    RUN is the EPOCHth one to write here
    shards/NNNN/deltas/VERSION-EPOCH-ATTEMPT.collecting   garbage up to VERSION and EPOCH is about to be removed
    shards/NNNN/snapshots/VERSION-EPOCH-ATTEMPT/FILE      a file that was new in the snapshot of VERSION
    shards/NNNN/snapshots/VERSION-EPOCH-ATTEMPT/manifest.json

VERSION has 12 decimal digits, EPOCH 8, ATTEMPT is unique. A delta's ATTEMPT begins with `writer_of` its run, as two
runs may have left a fence of one epoch; older releases did not write that. Deltas from before there were fences have no
EPOCH and count as epoch 0. Those that a tool wrote, with which a new state begins, have epoch 0 in their names.
"""

from __future__ import annotations

import re
import uuid
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from statestore.errors.state import UnsafeNameError

_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_LIMIT_CHARACTERS: Final = 1024  # the longest name that object stores take


def path_part(name: Any) -> str:
    """Return a name of up to 128 ASCII letters, digits, `.`, `_`, `-`, no dot first. Raises UnsafeNameError."""
    if not isinstance(name, str) or not _PART.fullmatch(name):
        raise UnsafeNameError(repr(name)[:200])
    return name


def is_relative_name(name: str) -> bool:
    """Return whether `name` leads to a file or directory below another one, with `/` between its parts."""
    return (
        len(name) <= _LIMIT_CHARACTERS
        and name.isprintable()
        and "\\" not in name
        and {"", ".", ".."}.isdisjoint(name.split("/"))
    )


SHARDS_DIRECTORY: Final = "shards"
MANIFEST_NAME: Final = "manifest.json"
MAX_EPOCH: Final = 10**8 - 1
EPOCH_OF_TOOLS: Final = 0
_WRITER_DIGITS: Final = 16
DELTA_SUFFIX: Final = ".arrow"
_DELTA: Final = re.compile(r"(\d{12})-(?:(\d{8})-)?([0-9a-f]{32})\.arrow")
_COLLECTION: Final = re.compile(r"(\d{12})-(\d{8})-([0-9a-f]{32})\.collecting")
_FENCE: Final = re.compile(r"(\d{8})-([0-9A-Za-z]{1,64})\.fence")
_SNAPSHOT: Final = re.compile(r"(\d{12})-(\d{8})-([0-9a-f]{32})")


class Written(NamedTuple):
    """What the name of a delta or of a snapshot's directory says: its version, and the epoch of its writer."""

    version: int
    epoch: int


class FenceName(NamedTuple):
    """What the name of a fence says."""

    epoch: int
    run: str


def delta_directory(shard: int) -> str:
    """Return where the deltas and fences of a shard stand in the state location."""
    return f"{SHARDS_DIRECTORY}/{shard:04d}/deltas"


def snapshot_directory(shard: int) -> str:
    """Return where the snapshots of a shard stand in the state location."""
    return f"{SHARDS_DIRECTORY}/{shard:04d}/snapshots"


def writer_of(run: str) -> str:
    """Return the 16 hex digits that stand for a run in the names of its deltas."""
    return blake2b(run.encode(), digest_size=_WRITER_DIGITS // 2).hexdigest()


def new_delta_name(shard: int, version: int, epoch: int, run: str | None = None) -> str:
    """Return a name that no other attempt will ever have; `run` is None if a tool writes it."""
    unique = uuid.uuid4().hex
    attempt = unique if run is None else writer_of(run) + unique[_WRITER_DIGITS:]
    return f"{delta_directory(shard)}/{version:012d}-{epoch:08d}-{attempt}.arrow"


def new_snapshot_name(shard: int, version: int, epoch: int) -> str:
    """Return the directory of a snapshot that no other attempt will ever have."""
    return f"{snapshot_directory(shard)}/{version:012d}-{epoch:08d}-{uuid.uuid4().hex}"


def fence_name(shard: int, fence: FenceName) -> str:
    """Return the name of a fence file."""
    return f"{delta_directory(shard)}/{fence.epoch:08d}-{path_part(fence.run)}.fence"


def new_collection_name(shard: int, version: int, epoch: int) -> str:
    """Return a name that no other announcement of a garbage collection will ever have."""
    return f"{delta_directory(shard)}/{version:012d}-{epoch:08d}-{uuid.uuid4().hex}.collecting"


def parse_delta_name(name: str) -> Written | None:
    """Return what a delta's name says, None if it is not one; directories before it do not matter."""
    return _parse(_DELTA, name)


def parse_delta_writer(name: str) -> str | None:
    """Return `writer_of` a delta's run, None if it is no delta. Of older releases and tools: any digits."""
    found = _match(_DELTA, name)
    return None if found is None else found[3][:_WRITER_DIGITS]


def is_of_tool(name: str) -> bool:
    """Return whether a tool that fills new states wrote a delta: no query has committed it."""
    found = _match(_DELTA, name)
    return found is not None and found[2] is not None and int(found[2]) == EPOCH_OF_TOOLS


def parse_snapshot_name(name: str) -> Written | None:
    """Return what the name of a snapshot's directory says, None if it is not one."""
    return _parse(_SNAPSHOT, name)


def parse_collection_name(name: str) -> Written | None:
    """Return up to which version and epoch an announced collection removes files; None if it is not one."""
    return _parse(_COLLECTION, name)


def parse_fence_name(name: str) -> FenceName | None:
    """Return what a fence's name says, None if it is not one."""
    found = _match(_FENCE, name)
    return None if found is None else FenceName(int(found[1]), found[2])


def _parse(pattern: re.Pattern[str], name: str) -> Written | None:
    found = _match(pattern, name)
    return None if found is None else Written(int(found[1]), int(found[2] or 0))


def _match(pattern: re.Pattern[str], name: str) -> re.Match[str] | None:
    return pattern.fullmatch(name.rpartition("/")[2])
