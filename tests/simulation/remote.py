"""Object stores and HDFS in memory: what stands for pyarrow's filesystem under the real `durable_files`.

Requests are operations of the simulation: they take time, fail, or are done and their answer gets lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from statestore.recovery.location.durable_files import DurableEntry, DurableFiles, LocalDisk, ObjectFiles, RenamedFiles
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from tests.simulation.decisions import LOCATION_READ, LOCATION_WRITE, Effect
from tests.simulation.scheduler import Scheduler

ROOT = "location"
"""Of the first state; the others' have a number behind it."""


class Info(NamedTuple):
    """What pyarrow's FileInfo says."""

    path: str
    type: Any
    size: int
    mtime_ns: int

    @property
    def base_name(self) -> str:
        return self.path.rpartition("/")[2]


class Stored:
    """The files that are there, by directory."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.directories: set[str] = set()
        self.on_set: Callable[[str], None] = lambda path: None
        self.on_removed: Callable[[str], None] = lambda path: None

    def get(self, path: str) -> bytes | None:
        directory, _, name = path.rpartition("/")
        return self.files.get(directory, {}).get(name)

    def set(self, path: str, data: bytes) -> None:
        directory, _, name = path.rpartition("/")
        self.files.setdefault(directory, {})[name] = data
        if data:
            self.on_set(path)

    def remove(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        names = self.files.get(directory, {})
        self.on_removed(path)
        return names.pop(name, None) is not None

    def children(self, directory: str) -> Iterator[Info]:
        for name, data in sorted(self.files.get(directory, {}).items()):
            yield Info(f"{directory}/{name}", fs.FileType.File, len(data), 0)
        begin = f"{directory}/"
        below = {
            other[len(begin) :].split("/")[0]
            for other in (*(known for known, held in self.files.items() if held), *self.directories)
            if other.startswith(begin)
        }
        for name in sorted(below):
            yield Info(f"{begin}{name}", fs.FileType.Directory, 0, 0)


class Remote:
    """A filesystem over `stored`, as the duck that DurableFiles needs. `renames` says that it is HDFS' kind."""

    def __init__(self, scheduler: Scheduler, stored: Stored, root: str, *, renames: bool) -> None:
        self.scheduler = scheduler
        self.stored = stored
        self.root = root
        self.renames = renames

    def request(self, point: str, path: str, *, writes: bool) -> Effect | None:
        """Begin a request; return what is to happen after it."""
        scheduler = self.scheduler
        actor = scheduler.current
        assert actor is not None
        effect = scheduler.op(point, path.removeprefix(f"{self.root}/"), LOCATION_WRITE if writes else LOCATION_READ)
        if scheduler.quiet:
            return None
        if actor.outage_until_ns > scheduler.now_ns:
            raise ConnectionError(f"{actor.struck[-1]}, again at {point}")
        if effect is Effect.ERROR:
            raise ConnectionError(scheduler.fault(actor, effect, point))
        if effect is Effect.OUTAGE:
            actor.outage_until_ns = scheduler.now_ns + 10**9
            raise ConnectionError(scheduler.fault(actor, effect, point))
        if effect is Effect.REFUSED:
            raise PermissionError(13, scheduler.fault(actor, effect, point))
        return effect

    def answer(self, effect: Effect | None, point: str) -> None:
        """End a request that was done."""
        actor = self.scheduler.current
        assert actor is not None
        if effect is Effect.LOST:
            raise ConnectionError(self.scheduler.fault(actor, effect, point))
        if effect is Effect.KILL_AFTER:
            self.scheduler.kill(actor.process)

    def open_input_file(self, path: str) -> _Input:
        self.request("location.read", path, writes=False)
        data = self.stored.get(path)
        if data is None:
            raise FileNotFoundError(path)
        return _Input(data)

    def open_output_stream(self, path: str) -> _Output:
        return _Output(self, path)

    def get_file_info(self, selector: Any) -> list[Info]:
        self.request("location.list", selector.base_dir, writes=False)
        found = list(self.stored.children(selector.base_dir))
        if not found and not selector.allow_not_found and selector.base_dir not in self.stored.directories:
            raise FileNotFoundError(selector.base_dir)
        if selector.recursive:
            for info in list(found):
                if info.type == fs.FileType.Directory:
                    below = fs.FileSelector(info.path, allow_not_found=True, recursive=True)
                    found.extend(self.get_file_info(below))
        actor = self.scheduler.current
        if actor is not None and not self.scheduler.quiet:
            actor.listings = [*actor.listings[-1:], [info.path for info in found]]
        return found

    def delete_file(self, path: str) -> None:
        effect = self.request("location.delete", path, writes=True)
        there = self.stored.remove(path)
        self.answer(effect, "location.delete")
        if not there and self.renames:
            raise OSError(f"HDFS DeleteFile failed, of {path}")  # which is all that its client says

    def delete_dir(self, path: str) -> None:
        effect = self.request("location.delete", f"{path}/", writes=True)
        for directory in [known for known in self.stored.files if known == path or known.startswith(f"{path}/")]:
            del self.stored.files[directory]
        self.stored.directories = {
            known for known in self.stored.directories if known != path and not known.startswith(f"{path}/")
        }
        self.answer(effect, "location.delete")

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        self.stored.directories.add(path)

    def move(self, source: str, target: str) -> None:
        """Rename as Arrow's HDFS does: what is in the way is deleted first."""
        effect = self.request("location.move", target, writes=True)
        data = self.stored.get(source)
        if data is None:
            raise FileNotFoundError(source)
        if self.stored.get(target) is not None:
            self.stored.remove(target)
            self.request("location.move between", target, writes=True)
            data = self.stored.get(source)
            if data is None:
                raise FileNotFoundError(source)
            if self.stored.get(target) is not None:
                raise OSError(f"HDFS Rename failed, of {target}")
        self.stored.remove(source)
        self.stored.set(target, data)
        self.answer(effect, "location.move")


class _Input:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __enter__(self) -> _Input:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        return

    def size(self) -> int:
        return len(self._data)

    def seek(self, offset: int) -> None:
        self._at = offset

    def read_buffer(self, size: int) -> pa.Buffer:
        return pa.py_buffer(self._data[self._at : self._at + size])


class _Output:
    """Shows an object when it is closed; on HDFS the file is there from the beginning."""

    def __init__(self, remote: Remote, path: str) -> None:
        self._remote = remote
        self._path = path
        self._chunks: list[bytes] = []
        if remote.renames:
            remote.request("location.create", path, writes=False)
            remote.stored.set(path, b"")

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def write(self, chunk: Any) -> None:
        self._chunks.append(bytes(memoryview(chunk)))

    def flush(self) -> None:
        return

    def close(self) -> None:
        effect = self._remote.request("location.write", self._path, writes=True)
        self._remote.stored.set(self._path, b"".join(self._chunks))
        self._remote.answer(effect, "location.write")


class Inline(Executor):
    """Does at once what it is given: requests of one actor are made one after the other."""

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments, **options))
        except Exception as failure:
            future.set_exception(failure)
        return future


class SimulatedLocation(DurableLocation):
    """A durable location of one process, on a filesystem in memory."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(
            f"simulated://{remote.root}", retrying=Retrying(total_s=0.5, first_wait_s=0.05, longest_wait_s=0.2)
        )
        self._remote = remote

    def below(self, name: str) -> DurableLocation:
        remote = self._remote
        return SimulatedLocation(
            Remote(remote.scheduler, remote.stored, f"{remote.root}/{name}", renames=remote.renames)
        )

    def open_filesystem(self) -> tuple[Any, str]:
        return self._remote, self._remote.root

    def _files(self, filesystem: Any, root: str) -> DurableFiles:
        if filesystem.renames:
            return RenamedFiles(filesystem, self.retrying)
        return ObjectFiles(filesystem, self.retrying, filesystem)

    def requests(self, at_once: int, name: str) -> Executor:
        return Inline()


class SimulatedLocalLocation(DurableLocation):
    """A durable location on a disk of the simulation, as one process sees it."""

    def __init__(self, scheduler: Scheduler, path: str, disk: LocalDisk) -> None:
        super().__init__(path, disk=disk)
        self._scheduler = scheduler

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        self._request("location.read", name)
        return super().read(name, max_bytes)

    def fetch(self, name: str, path: Any, max_bytes: int) -> bool:
        self._request("location.read", name)
        return super().fetch(name, path, max_bytes)

    def entries(self, directory: str) -> list[DurableEntry]:
        self._request("location.list", directory)
        return super().entries(directory)

    def directories(self, directory: str) -> list[str]:
        self._request("location.list", directory)
        return super().directories(directory)

    def requests(self, at_once: int, name: str) -> Executor:
        return Inline()

    def _request(self, point: str, name: str) -> None:
        effect = self._scheduler.op(point, name, (Effect.REFUSED, Effect.KILL))
        if effect is Effect.REFUSED:
            actor = self._scheduler.current
            assert actor is not None
            with self._read_errors(f"{name} can't be read"):
                raise OSError(5, self._scheduler.fault(actor, effect, point))
