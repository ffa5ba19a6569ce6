"""Damages files at rest, and brings them back from a backup as an operator would."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from statestore.testing.faults.journal import FaultJournal

_ROTTEN = "rotten"
_WAYS = 3
"""Ways to damage a file: a bit flipped, the end cut off, all of it gone."""


def flip_bit(data: bytes, amount: int) -> bytes:
    """Return `data` with one bit flipped; `amount` of 1 to 999 says where in it. Empty data stays empty."""
    changed = bytearray(data)
    if changed:
        changed[len(changed) * (amount % 1000) // 1000] ^= 1 << amount % 8
    return bytes(changed)


def damage(path: Path, amount: int) -> str:
    """Damage the file at `path`, and return how: `amount` of 1 to 2,999 says in which way, and where."""
    way, where = divmod(amount, 1000)
    data = path.read_bytes()
    if way % _WAYS == 0 and data:
        path.write_bytes(flip_bit(data, where))
        return f"flipped a bit of {path}"
    if way % _WAYS == 1 and data:
        os.truncate(path, len(data) * where // 1000)
        return f"cut {path} from {len(data)} to {path.stat().st_size} bytes"
    path.unlink()
    return f"removed {path}"


def rot(journal: FaultJournal, directory: Path, name: str, amount: int) -> str:
    """Damage the file `name` of a durable location at `directory`, keeping a backup; return how it was damaged."""
    backup = journal.directory / "backup" / name
    if not backup.exists():  # a second damage keeps the first backup
        backup.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(directory / name, backup)
    how = damage(directory / name, amount)
    journal.note(_ROTTEN, name)
    return how


def rotten_files(journal: FaultJournal) -> list[str]:
    """Return the names of the files that have rotted and were not brought back."""
    return list(dict.fromkeys(journal.notes(_ROTTEN)))


def bring_back(journal: FaultJournal, directory: Path) -> list[str]:
    """Restore every rotten file from its backup, as an operator does; return their names."""
    names = rotten_files(journal)
    for name in names:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(journal.directory / "backup" / name, target)
    journal.forget(_ROTTEN)
    return names


def damage_local(directory: Path, amount: int) -> str | None:
    """Damage one file of the local copies below `directory`; return how, None if there is none."""
    # Locks and logs hold no state.
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name != "LOG"
    )
    if not files:
        return None
    return damage(random.Random(amount).choice(files), amount)
