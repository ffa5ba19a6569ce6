"""One tool at a time where a location is taken for a new state, cleared, or made one: see `new_state`.

    making/ID       {"doing": str, "host": str, "pid": int, "time_ms": int, "process": str}; ID is unique

No filesystem that we write to can compare and set; a listing shows what was written before it began. So whoever wants a
turn writes a file and then lists the directory. Alone there, it has the turn until it removes its file. Of two that had
it at once, the one that wrote its file later must have seen the other's, which stays to the end of the turn: so there
are no two. Whoever is not alone withdraws, and tries again a little later. Nothing is decided by what was read before
the turn: all of it is read again within.

Who is killed in its turn leaves its file. The next one on the same machine removes it, as it can tell that the process
is no more. From elsewhere, or after a reboot, it can't be told from one that is slow: then somebody has to remove it.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from statestore.errors import LocationBusyError
from statestore.errors.readable import utc_text
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.location.durable_json import MAX_NOTE_BYTES, from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.local_disk import is_partial

_LOG = logging.getLogger(__name__)
TURNS_DIRECTORY: Final = "making"
_FIRST_WAIT_S: Final = 0.1
_TRIES: Final = 8
"""Waits double, with jitter: some 6 s to 13 s in all."""


@contextmanager
def turn(location: DurableLocation, purpose: str) -> Iterator[None]:
    """Enter when nobody else has a turn; `purpose` is for who waits. Raises LocationBusyError after many seconds."""
    wait_s = _FIRST_WAIT_S
    for _ in range(_TRIES):
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
        time.sleep(random.uniform(wait_s / 2, wait_s))
        wait_s *= 2
    raise _busy(location, others[0])


def _is_removed(location: DurableLocation, name: str) -> bool:
    """Remove the file of a process that is no more; return whether it was one."""
    try:
        fields = from_durable_json(location.read(name, MAX_NOTE_BYTES))
        recorded, pid = str(fields.get("process", "")), whole_number(fields["pid"], 1)
    except (*MALFORMED, DurableFileCorruptedError):
        return False
    if not _has_ended(recorded, pid):
        return False
    _LOG.info("%s: removing %s, which process %d has left that is no more", location, name, pid)
    location.delete(name)
    return True


def _has_ended(recorded: str, pid: int) -> bool:
    """Return whether it is sure that the process is no more that `_process` has named so; it had this number."""
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
    # Behind the name in brackets, which may hold anything, the time of its start is the 20th field.
    return None if machine is None else f"{machine}/{pid}/{status.rpartition(')')[2].split()[19]}"


def _busy(location: DurableLocation, name: str) -> LocationBusyError:
    try:
        fields = from_durable_json(location.read(name, MAX_NOTE_BYTES))
        since = utc_text(whole_number(fields["time_ms"], 0))
        by = f"{fields['doing']} (process {whole_number(fields['pid'], 0)} on {fields['host']}, since {since})"
    except (*MALFORMED, DurableFileCorruptedError):
        by = "somebody who can't be told any more"
    return LocationBusyError(str(location), file=location.path(name), by=by)
