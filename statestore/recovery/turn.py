"""One tool at a time where a location is taken for a new state, cleared, or made one: see `new_state`.

    making/ID       {"doing": str, "host": str, "pid": int, "time_ms": int}; ID is unique

No filesystem that we write to can compare and set; a listing shows what was written before it began. So whoever wants a
turn writes a file and then lists the directory. Alone there, it has the turn until it removes its file. Of two that had
it at once, the one that wrote its file later must have seen the other's, which stays to the end of the turn: so there
are no two. Whoever is not alone withdraws, and tries again a little later. Nothing is decided by what was read before
the turn: all of it is read again within. Who is killed in its turn leaves its file, and nothing goes on before somebody
removes it: it can't be told from one that is slow.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from statestore.errors import LocationBusyError
from statestore.recovery.json_fields import MALFORMED, whole_number
from statestore.recovery.local_disk import is_partial
from statestore.recovery.location import DurableLocation

TURNS_DIRECTORY: Final = "making"
_FIRST_WAIT_S: Final = 0.1
_TRIES: Final = 8
"""Waits double, with jitter: some 6 s to 13 s in all."""


@contextmanager
def turn(location: DurableLocation, doing: str) -> Iterator[None]:
    """Enter when nobody else has a turn in the location.

    `doing` says what it is for, to whoever waits for it. Raises LocationBusyError if others have it for many seconds,
    and LocationNotWritableError.
    """
    wait_s = _FIRST_WAIT_S
    for _ in range(_TRIES):
        mine = f"{TURNS_DIRECTORY}/{uuid.uuid4().hex}"
        said = {
            "doing": doing,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time_ms": time.time_ns() // 1_000_000,
        }
        try:
            location.write(mine, json.dumps(said).encode())
            others = [name for name in location.names(TURNS_DIRECTORY) if name != mine and not is_partial(name)]
            if not others:
                yield
                return
        finally:
            location.delete(mine)
        time.sleep(random.uniform(wait_s / 2, wait_s))
        wait_s *= 2
    raise _busy(location, others[0])


def _busy(location: DurableLocation, name: str) -> LocationBusyError:
    data = location.read(name)
    try:
        fields = json.loads(b"" if data is None else data.to_pybytes())
        begun = time.gmtime(whole_number(fields["time_ms"], 0) / 1000)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", begun)
        by = f"{fields['doing']} (process {whole_number(fields['pid'], 0)} on {fields['host']}, since {since})"
    except MALFORMED:
        by = "somebody who can't be told any more"
    return LocationBusyError(str(location), file=location.path(name), by=by)
