"""Local disks that forget what was not synced when the power goes.

`SimulatedDisk` is under a durable location on a local disk: every primitive operation is one of the simulation.
`Unsynced` is what the disk of a machine may forget of the files of its local copies.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa

from statestore.recovery.location.durable_files import LocalDisk
from tests.simulation.decisions import DISK, Effect
from tests.simulation.scheduler import Scheduler


class DiskNotes:
    """What is not on the disk yet: names that came, changed or went, with what was there before; and contents."""

    def __init__(self) -> None:
        self.names: dict[str, bytes | None] = {}
        self.contents: set[str] = set()
        self.on_named: Callable[[str], None] = lambda path: None
        self.on_removed: Callable[[str], None] = lambda path: None

    def lose(self, rng: random.Random) -> None:
        """Forget some of it."""
        for path in sorted(self.contents):
            if os.path.isfile(path) and rng.random() < 0.5:
                os.truncate(path, rng.choice((0, os.path.getsize(path) // 2)))
        for path, before in reversed(self.names.items()):
            if rng.random() < 0.5:
                if before is not None:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(before)
                elif os.path.isdir(path):
                    shutil.rmtree(path)
                elif os.path.lexists(path):
                    os.remove(path)
        self.names.clear()
        self.contents.clear()


class SimulatedDisk(LocalDisk):
    """The disk of a durable location, as one process sees it."""

    def __init__(self, scheduler: Scheduler, root: str, notes: DiskNotes, power_off: Callable[[int], None]) -> None:
        super().__init__()
        self._root = root
        self._scheduler = scheduler
        self._notes = notes
        self._power_off = power_off

    def make_directory(self, path: str) -> None:
        if not os.path.isdir(path):
            self._notes.names.setdefault(path, None)
        super().make_directory(path)

    def create(self, path: str) -> BinaryIO:
        effect = self._operation("disk.create", path)
        self._notes.names.setdefault(path, None)
        self._notes.contents.add(path)
        file = super().create(path)
        try:
            self._after(effect)
        except BaseException:
            file.close()  # whoever is killed here can't, and its file would be unclosed in this process
            raise
        return file

    def append(self, file: BinaryIO, data: bytes | pa.Buffer) -> None:
        self._operation("disk.append", file.name, file)
        super().append(file, data)

    def sync_file(self, file: BinaryIO) -> None:
        file.flush()
        effect = self._operation("disk.sync", file.name)
        super().sync_file(file)
        self._notes.contents.discard(file.name)
        self._after(effect)

    def replace(self, source: str, target: str) -> None:
        effect = self._operation("disk.replace", target)
        self._notes.names.pop(source, None)
        self._notes.names.setdefault(target, _content(target))
        if source in self._notes.contents:
            self._notes.contents.discard(source)
            self._notes.contents.add(target)
        super().replace(source, target)
        self._notes.on_named(target)
        self._after(effect)

    def sync_directory(self, path: str) -> None:
        effect = self._operation("disk.sync directory", path)
        super().sync_directory(path)
        for name in [name for name in self._notes.names if os.path.dirname(name) == path]:
            del self._notes.names[name]
        self._after(effect)

    def remove(self, path: str) -> None:
        effect = self._operation("disk.remove", path)
        self._notes.names.setdefault(path, _content(path))
        self._notes.on_removed(path)
        super().remove(path)
        self._after(effect)

    def _operation(self, point: str, path: str, file: BinaryIO | None = None) -> Effect | None:
        scheduler = self._scheduler
        effect = scheduler.op(point, path.replace(self._root, ""), DISK)
        actor = scheduler.current
        assert actor is not None
        if effect is Effect.POWER:
            self._power_off(scheduler.decisions.taken[-1].amount)
        if effect is Effect.REFUSED:
            raise OSError(errno.EIO, scheduler.fault(actor, effect, point))
        if effect is Effect.NO_SPACE:
            if file is not None:
                file.write(b"half")
            raise OSError(errno.ENOSPC, f"No space left on device: {scheduler.fault(actor, effect, point)}")
        return effect

    def _after(self, effect: Effect | None) -> None:
        if effect is Effect.KILL_AFTER:
            actor = self._scheduler.current
            assert actor is not None
            self._scheduler.kill(actor.process)


def _content(path: str) -> bytes | None:
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return file.read()


class Unsynced:
    """The files of a machine's local directory that were written and not synced, with all that they held since."""

    def __init__(self) -> None:
        self.files: dict[str, list[bytes | None]] = {}

    def opened(self, path: str) -> None:
        """Note that a file is about to be written."""
        self.files.setdefault(path, []).append(_content(path))

    def synced(self, path: str) -> None:
        """Note that a file is on the disk."""
        self.files.pop(path, None)

    def renamed(self, source: str, target: str) -> None:
        """Note that a file or directory got another name."""
        for path in [path for path in self.files if path == source or path.startswith(f"{source}/")]:
            before = self.files.pop(path)
            self.files[target + path[len(source) :]] = before

    def lose(self, rng: random.Random) -> None:
        """Forget some of it."""
        for path, before in sorted(self.files.items()):
            if not os.path.isfile(path):
                continue
            fate = rng.choice(("kept", "kept", "old", "cut", "cut"))
            # Of several writes the disk may have had the first ones.
            old = rng.choice(before) if fate == "old" else None
            if old is not None:
                with open(path, "wb") as file:
                    file.write(old)
            elif fate == "cut":
                os.truncate(path, rng.choice((0, os.path.getsize(path) // 2)))
        self.files.clear()
