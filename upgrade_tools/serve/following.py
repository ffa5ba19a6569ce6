"""The state that is served, at its newest batch. One thread owns the open shards: whatever reads them runs there."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import StateStoreError
from statestore.errors.readable import without_secrets
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head
from statestore.recovery.local.local_directory import temporary_copies
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import CommittedStore
from statestore.view import StateView
from upgrade_tools.errors import StoreNotFoundError, UnknownLayoutError
from upgrade_tools.states.detection import open_states
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import StateOptions

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
_OPEN_SHARDS: Final = 16
_KEPT_BATCHES: Final = 200


@dataclass(frozen=True)
class SeenBatch:
    """A batch that was committed while the state was served, or the first one served."""

    stage: int
    batch: int
    run: str
    time_ms: int
    changed: Mapping[str, tuple[int, int]]
    """Shard and version of each delta that it has written, by the delta's name."""


class ServedStage:
    """The state of one stage of a query, at one batch for all its shards. Used in one thread, but for `state`."""

    def __init__(
        self,
        number: int,
        location: DurableLocation,
        pointers: Sequence[CommitPointer] | None = None,
        work_dir: str | None = None,
    ) -> None:
        self.number = number
        self._work_dir = work_dir
        self._used: OrderedDict[int, None] = OrderedDict()
        with ExitStack() as opened:
            local_dir = opened.enter_context(temporary_copies(work_dir))
            self._view = opened.enter_context(
                StateView(location, pointers=pointers, local_dir=local_dir, max_open_shards=_OPEN_SHARDS)
            )
            self._opened = opened.pop_all()
        self.state = self._state()
        """What is committed, without open shards: replaced with each batch, never changed."""

    @property
    def head(self) -> Head | None:
        """The head that says what is committed; None if pointers were given."""
        return self.state.head

    @property
    def at(self) -> str:
        """A name that no other commit has, for page tokens."""
        return "given" if self.head is None else f"{self.head.run}/{self.head.batch}"

    @property
    def open_shards(self) -> tuple[int, ...]:
        """The shards that were asked for last, and so are open."""
        return tuple(self._used)

    def shard(self, shard: int) -> Mapping[str, CommittedStore]:
        """Return the stores of a shard, until another one is asked for. Raises RecoveryError, LocationError."""
        stores = self._view.shard(shard).stores
        self._used[shard] = None
        self._used.move_to_end(shard)
        if len(self._used) > _OPEN_SHARDS:
            self._used.popitem(last=False)
        return stores

    def refresh(self) -> bool:
        """Go on to a later commit; return whether there is one. Raises RecoveryError, LocationError."""
        is_other = self._view.refresh()
        if is_other or self._view.metadata != self.state.metadata:
            self.state = self._state()
        return is_other

    def close(self) -> None:
        """Close all shards."""
        self._opened.close()

    def _state(self) -> LocationState:
        view = self._view
        options = StateOptions(pointers=view.pointers, work_dir=self._work_dir)
        state = LocationState(view.location, view.metadata, options)
        state.head = view.head
        return state


class Follower:
    """Opens a state, goes on to each new batch, and tells those who subscribed."""

    def __init__(
        self,
        path: str,
        *,
        pointers: Sequence[CommitPointer] | None = None,
        work_dir: str | None = None,
        poll_s: float = 1.0,
    ) -> None:
        self.path = without_secrets(path)
        self.problem: str | None = None
        """Why the newest batch can't be read; None if it can."""
        self.stages: list[ServedStage] = []
        self.batches: deque[SeenBatch] = deque(maxlen=_KEPT_BATCHES)
        self._place = path
        self._options = StateOptions(pointers=pointers, work_dir=work_dir)
        self._poll_s = poll_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="serve-state")
        self._subscribers: set[asyncio.Queue[SeenBatch | None]] = set()

    def open(self) -> None:
        """Open the state; nothing is restored yet. Raises StateStoreError, also if nothing says what is committed."""
        for number, state in enumerate(open_states(self._place, self._options)):
            if not isinstance(state, LocationState):
                found = f"a {state.layout.value}, and only state locations are served"
                raise UnknownLayoutError(state.path, found=found)
            if self._options.pointers is None:
                state.read_head()
            _ = state.pointers  # raises, and names the option that is missing
            self.stages.append(ServedStage(number, state.location, self._options.pointers, self._options.work_dir))
            self._see(self.stages[-1])

    async def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the thread of the open shards, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def follow(self) -> None:
        """Go on to new batches until this is cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            before = self.problem
            try:
                found = await self.ask(self._refresh)
            except Exception as error:
                # A defect of ours: the last batch is served on, and the problem says that it may not be the newest.
                _LOG.exception("%s can't be followed; trying again", self.path)
                self.problem, found = f"the newest batch can't be read: {error}", []
            for event in found if before == self.problem else [*found, None]:
                for queue in self._subscribers:
                    queue.put_nowait(event)

    @contextmanager
    def subscribed(self) -> Iterator[asyncio.Queue[SeenBatch | None]]:
        """Hand out a queue of batches to come; None in it says that `problem` has changed."""
        queue: asyncio.Queue[SeenBatch | None] = asyncio.Queue()
        self._subscribers.add(queue)
        try:
            yield queue
        finally:
            self._subscribers.discard(queue)

    def stage_of(self, store: str) -> tuple[ServedStage, StoreSpec]:
        """Return the stage that has a store, and its spec. Raises StoreNotFoundError."""
        for stage in self.stages:
            for spec in stage.state.metadata.stores:
                if spec.name == store:
                    return stage, spec
        known = [spec.name for stage in self.stages for spec in stage.state.metadata.stores]
        raise StoreNotFoundError(self.path, store=store, known=known)

    def batch_of(self, stage: int, delta: str) -> int | None:
        """Return the number of the batch that has written a delta, by its name; None if it was not seen."""
        made = (each.batch for each in self.batches if each.stage == stage and delta in each.changed)
        return next(made, None)

    def close(self) -> None:
        """Close all that is open. Closing twice is harmless."""
        with suppress(RuntimeError):
            self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        for stage in self.stages:
            stage.close()

    def _refresh(self) -> list[SeenBatch]:
        if self._options.pointers is not None:
            return []
        found = []
        try:
            for stage in self.stages:
                if stage.refresh():
                    found.append(self._see(stage))
            self.problem = None
        except (StateStoreError, OSError) as error:
            self.problem = str(error)
        return found

    def _see(self, stage: ServedStage) -> SeenBatch:
        head = stage.head
        if head is None:
            batch = SeenBatch(stage.number, -1, "", 0, {})
        else:
            # Not what differs from the head before: batches in between may not have been seen, or were given up.
            changed = {head.pointers[shard].head: (shard, head.pointers[shard].version) for shard in head.changed}
            batch = SeenBatch(stage.number, head.batch, head.run, head.time_ms, changed)
        self.batches.append(batch)
        return batch
