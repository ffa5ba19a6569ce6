"""How processes agree that have nothing but a location in common: on a content, on whose turn it is, on the owner.

No filesystem that we write to can compare and set. All that is relied on: a listing shows whatever was written before
it began. Whoever is killed on the way blocks nobody, or, in its turn, nobody on the same machine.

    starting/GENERATION-BALLOT-promised-ID     ID asks; empty
    starting/GENERATION-BALLOT-accepted-ID     the content that ID asks for with that ballot
    making/ID                                  {"doing": str, "host": str, "pid": int, "time_ms": int, "process": str}
    owners/QUERY_ID                            the query that owns the location; empty, never removed
    owners/QUERY_ID.UNIQUE.claiming            one of its processes is about to write that; empty

**Agreement** on one content for `statestore.json`, by generation (0 is the first), is Disk Paxos on a single disk.
Ballots are ordered by number, then by ID. Whoever asks promises a ballot, and lists. If somebody has a higher one, it
waits and asks again with a still higher one. Otherwise it accepts, with its ballot, what was accepted with the highest
ballot so far, or its own content if nothing was, and lists again. If nobody has a higher ballot by then, that content
is agreed on: whoever promises a higher one later finds it accepted when it lists, and can only accept the same.

The files of the last generations stay when their content is recorded: a slow start may record what it agreed on long
ago over what came after. Whoever reads it then finds that a content was accepted for the next generation, asks as well,
and learns what was agreed on.

**A turn** is for tools that take a location for a new state, clear it, or complete it: see `new_state`. Whoever wants
one writes a file and then lists the directory. If it is alone, it has the turn until it removes its file; otherwise it
withdraws, and tries again a little later. Two can't have a turn at once: the one that wrote its file later saw the
other's, which stays to the end of the turn. Nothing is decided by what was read before the turn. A process that is
killed in its turn leaves its file. The next one on the same machine can tell that the process has ended, and removes
it. From elsewhere, or after a reboot, it looks like a slow one: then an operator has to remove it.

**The owner** of a location is one query, known by the id that Spark keeps in its checkpoint, so restarts are the same
query. A second query finds the claim and stops before it has written anything else. Whoever finds no claim says first
that it is claiming, and looks again: of two queries that claim at once, at least one sees the other. If each sees the
other, both stop, and starting one of them again settles it. A process withdraws only what it has said itself, so it
takes no claim from another one that has looked and found nobody.
"""

from __future__ import annotations

import logging
import os
import random
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from statestore.errors import LocationBusyError, LocationInUseError
from statestore.errors.readable import utc_text
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.location.durable_files import is_partial, whole_name
from statestore.recovery.location.durable_json import (
    MAX_DOCUMENT_BYTES,
    MAX_NOTE_BYTES,
    from_durable_json,
    to_durable_json,
    write_document,
)
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import path_part

_LOG = logging.getLogger(__name__)
AGREEMENT_DIRECTORY: Final = "starting"
TURNS_DIRECTORY: Final = "making"
_OWNERS_DIRECTORY: Final = "owners"
_FIRST_WAIT_S: Final = 0.1
_TRIES: Final = 8
"""Waits double, with jitter: some 6 s to 13 s in all."""


def _tries() -> Iterator[None]:
    """Yield once for each try, and wait between them."""
    yield
    for number in range(_TRIES - 1):
        wait_s = _FIRST_WAIT_S * 2**number
        time.sleep(random.uniform(wait_s / 2, wait_s))
        yield


_NAME: Final = re.compile(r"(\d{8})-(\d{8})-(promised|accepted)-([0-9a-f]{32})")
_KEPT_GENERATIONS: Final = 16


class _Ballot(NamedTuple):
    number: int
    asker: str


def agree(location: DurableLocation, generation: int, content: bytes, is_recorded: Callable[[], bool]) -> bytes | None:
    """Return the content that is agreed on, None if it was recorded. Raises LocationBusyError after many seconds."""
    mine = _Ballot(0, uuid.uuid4().hex)
    for _ in _tries():
        number = max([mine.number, *(ballot.number for ballot in _ballots(location, generation))]) + 1
        mine = mine._replace(number=number)
        location.write(_name(generation, mine, "promised"), b"")
        ballots = _ballots(location, generation)
        if is_recorded():
            return None
        if max(ballots, default=mine) == mine:
            accepted = max((ballot for ballot, name in ballots.items() if name is not None), default=None)
            name = None if accepted is None else ballots[accepted]
            found = None if name is None else location.read(name, MAX_DOCUMENT_BYTES)
            value = content if name is None else None if found is None else found.to_pybytes()
            # A file that is gone by now was removed long after the content was recorded: the next round finds that.
            if value is not None:
                write_document(location, _name(generation, mine, "accepted"), value)
                highest = max(_ballots(location, generation), default=mine)
                if is_recorded():
                    return None
                if highest == mine:
                    return value
    highest = max(_ballots(location, generation), default=mine)
    file = location.path(_name(generation, highest, "promised"))
    raise LocationBusyError(str(location), file=file, by="others that start at the same time")


def may_be_agreed(location: DurableLocation, generation: int) -> bool:
    """Return whether anybody has accepted a content for a generation: without that, none is agreed on yet."""
    return any(name is not None for name in _ballots(location, generation).values())


def forget_agreements(location: DurableLocation, generation: int) -> None:
    """Remove the files of generations long before this one, which is recorded."""
    if generation < _KEPT_GENERATIONS:
        return
    for name in location.names(AGREEMENT_DIRECTORY):
        found = _parse_name(whole_name(name))
        if found is not None and int(found[1]) <= generation - _KEPT_GENERATIONS:
            location.delete(name)


def _name(generation: int, ballot: _Ballot, kind: str) -> str:
    return f"{AGREEMENT_DIRECTORY}/{generation:08d}-{ballot.number:08d}-{kind}-{ballot.asker}"


def _ballots(location: DurableLocation, generation: int) -> dict[_Ballot, str | None]:
    """Return the ballots that were promised, each with the name of what was accepted with it; None if nothing was."""
    ballots: dict[_Ballot, str | None] = {}
    for name in location.names(AGREEMENT_DIRECTORY):
        found = _parse_name(name)
        if found is not None and int(found[1]) == generation:
            ballot = _Ballot(int(found[2]), found[4])
            ballots[ballot] = name if found[3] == "accepted" else ballots.get(ballot)
    return ballots


def _parse_name(name: str) -> re.Match[str] | None:
    return _NAME.fullmatch(name.rpartition("/")[2])


@contextmanager
def turn(location: DurableLocation, purpose: str) -> Iterator[None]:
    """Enter when nobody else has a turn; those who wait see `purpose`. Raises LocationBusyError after many seconds."""
    for _ in _tries():
        mine = f"{TURNS_DIRECTORY}/{uuid.uuid4().hex}"
        fields = {
            "doing": purpose,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time_ms": time.time_ns() // 1_000_000,
            "process": _process(os.getpid()) or "",
        }
        try:
            location.write(mine, to_durable_json(fields).encode())
            found = (name for name in location.names(TURNS_DIRECTORY) if name != mine and not is_partial(name))
            others = [name for name in found if not _is_removed(location, name)]
            if not others:
                yield
                return
        finally:
            location.delete(mine)
    raise _busy(location, others[0])


def _is_removed(location: DurableLocation, name: str) -> bool:
    """Remove the file of a process that has ended; return whether it was one."""
    try:
        fields = from_durable_json(location.read(name, MAX_NOTE_BYTES))
        recorded, pid = str(fields.get("process", "")), whole_number(fields["pid"], 1)
    except (*MALFORMED, DurableFileCorruptedError):
        return False
    if not _has_ended(recorded, pid):
        return False
    _LOG.info("%s: removing %s: process %d, which wrote it, has ended", location, name, pid)
    location.delete(name)
    return True


def _has_ended(recorded: str, pid: int) -> bool:
    """Return whether the process that `_process` named so, and that had this number, has ended for certain."""
    machine = _machine()
    if machine is None or not recorded.startswith(f"{machine}/"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    now = _process(pid)  # None if others' processes are hidden here
    return now is not None and now != recorded


def _machine() -> str | None:
    """Return what names this machine since it started, and its space of process ids; None if it can't be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _process(pid: int) -> str | None:
    """Return what names a process of this machine, and no other before or after; None if it can't be told."""
    machine = _machine()
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The time of its start is the 20th field behind the name in brackets, which may hold anything.
    return None if machine is None else f"{machine}/{pid}/{status.rpartition(')')[2].split()[19]}"


def _busy(location: DurableLocation, name: str) -> LocationBusyError:
    try:
        fields = from_durable_json(location.read(name, MAX_NOTE_BYTES))
        since = utc_text(whole_number(fields["time_ms"], 0))
        by = f"{fields['doing']} (process {whole_number(fields['pid'], 0)} on {fields['host']}, since {since})"
    except (*MALFORMED, DurableFileCorruptedError):
        by = "a process that its file does not name"
    return LocationBusyError(str(location), file=location.path(name), by=by)


_CLAIMING: Final = ".claiming"
_LOOKS: Final = 2
"""A listing may miss a query in the moment in which it turns what it has said into its claim: the next one has it."""


def claim(location: DurableLocation, query_id: str) -> None:
    """Make the query `query_id` the owner of `location`. Raises LocationInUseError if another one is, or becomes it."""
    mine = f"{_OWNERS_DIRECTORY}/{path_part(query_id)}"
    owners, claiming = _claims(location)
    _refuse_others(location, query_id, owners)
    if query_id in owners:
        return  # whoever is claiming now must find it
    _refuse_others(location, query_id, claiming)
    claim = f"{mine}.{uuid.uuid4().hex}{_CLAIMING}"
    location.write(claim, b"")
    try:
        for _ in range(_LOOKS):
            _refuse_others(location, query_id, set().union(*_claims(location)))
        location.write(mine, b"")
    finally:
        location.delete(claim)


def _claims(location: DurableLocation) -> tuple[set[str], set[str]]:
    """Return which queries have claimed a location, and which are claiming it."""
    names = [name.removeprefix(f"{_OWNERS_DIRECTORY}/") for name in location.names(_OWNERS_DIRECTORY)]
    whole = [name for name in names if not is_partial(name)]
    claiming = {name.removesuffix(_CLAIMING).rpartition(".")[0] for name in whole if name.endswith(_CLAIMING)}
    return {name for name in whole if not name.endswith(_CLAIMING)}, claiming


def _refuse_others(location: DurableLocation, query_id: str, queries: Iterable[str]) -> None:
    for owner in sorted(queries):
        if owner != query_id:
            raise LocationInUseError(str(location), owner=owner, query=query_id)
