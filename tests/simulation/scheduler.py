"""The baton: of all actors of a simulation exactly one runs, and at every operation it is decided who goes on.

An actor is a thread of a process of a machine: a driver, an attempt of a task, an upload. The code under test runs in
it as it is. Every operation on location, disk or database calls `op`, where a decision may pause the actor, kill its
process, or be handed back to the caller as a fault. Without a decision an actor goes on until it waits or ends; then
the one that has waited longest is next. So the decisions are all there is to a schedule: see `decisions`.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from statestore.testing.faults.fault import FileKind
from tests.simulation.decisions import Decisions, Effect

_UNIQUE = re.compile(r"[0-9a-f]{32}")
MAX_STEPS = 30_000
"""More than any plan takes that comes to an end."""


class Killed(BaseException):
    """The process of this actor is dead: nothing that it still does has an effect."""


class SimulationFailed(BaseException):
    """Something is wrong: the simulation ends."""


class Process:
    """A process of a machine, which can be killed. `memory` is what it keeps from call to call."""

    def __init__(self, name: str, machine: Any = None) -> None:
        self.name = name
        self.machine = machine
        self.dead = False
        self.actors: list[Actor] = []
        self.memory: dict[str, Any] = {}
        self.busy: Any = None

    def __repr__(self) -> str:
        return self.name


class Actor:
    """One thread of a process."""

    def __init__(self, name: str, process: Process, run: Callable[[], None]) -> None:
        self.name = name
        self.process = process
        self.run = run
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: threading.Thread | None = None
        self.done = False
        self.been: dict[str, int] = {}
        """How often it was at each place."""
        self.condition: Callable[[], bool] | None = None
        self.struck: list[str] = []
        """The faults that struck it, as their texts."""
        self.outage_until_ns = 0
        """Until when it can't reach the object store."""
        self.listings: list[list[str]] = []
        """The paths of all that its last two listings showed."""

    def __repr__(self) -> str:
        return self.name


def place_of(point: str, what: str) -> str:
    """Return the place of an operation: what it does, and to what kind of thing. Decisions are for places."""
    kind, _, _ = point.partition(".")
    if kind in ("location", "disk"):
        return f"{point} of {FileKind.of(what).value}" if "." in what or "/owners/" in f"/{what}" else point
    if kind == "local":
        return f"{point} {_UNIQUE.sub('', what.rpartition('/')[2])}"
    return f"{point} {what.partition(':')[0]}" if kind == "db" and ":" in what else point


class Scheduler:
    """Runs actors, one at a time."""

    def __init__(self, decisions: Decisions, *, keep_trace: bool = False) -> None:
        self.decisions = decisions
        self.current: Actor | None = None
        self.step = 0
        """The time that pauses are measured in: operations, and what nobody could use."""
        self.operations = 0
        self.now_ns = 1_700_000_000 * 10**9
        self.problem: str | None = None
        self.trace: list[str] | None = [] if keep_trace else None
        self.quiet = 0
        self._ready: deque[Actor] = deque()
        self._paused: list[tuple[int, int, Actor]] = []
        self._blocked: list[Actor] = []
        self._unwinding: list[threading.Lock] = []
        self._main = threading.Lock()
        self._main.acquire()
        self._order = 0
        self._faults = 0
        self.actors: list[Actor] = []
        self.on_kill: Callable[[Process], None] = lambda process: None

    # What actors call.

    def spawn(self, name: str, process: Process, run: Callable[[], None]) -> Actor:
        """Have `run` done by a new actor, when its turn comes."""
        actor = Actor(name, process, run)
        process.actors.append(actor)
        self.actors.append(actor)
        self._ready.append(actor)
        return actor

    def op(self, point: str, what: str = "", effects: tuple[Effect, ...] = ()) -> Effect | None:
        """Stand for an operation of the actor that runs; return the fault that is to strike it, None for none."""
        actor = self.current
        assert actor is not None
        if actor.process.dead:
            raise Killed
        if self.problem is not None:
            raise SimulationFailed
        if self.quiet:
            return None
        place = place_of(point, what)
        occurrence = actor.been[place] = actor.been.get(place, 0) + 1
        self.step += 1
        self.operations += 1
        self.now_ns += 1_000_000
        if self.operations > MAX_STEPS:
            self.fail(f"no end after {MAX_STEPS} operations")
        decision = self.decisions.at(actor.name, place, occurrence, effects)
        if self.trace is not None:
            said = "" if decision is None else f"  << {decision[0].value} {decision[1] or ''}".rstrip()
            self.trace.append(f"{self.step:5d} {actor.name} {place} #{occurrence} {what}{said}")
        effect: Effect | None = None
        if decision is not None:
            effect, amount = decision
            if effect is Effect.PAUSE:
                effect = None
                self._order += 1
                heappush(self._paused, (self.step + amount, self._order, actor))
                self._give_way(actor)
            elif effect is Effect.KILL:
                self.kill(actor.process)
        elif self._paused and self._paused[0][0] <= self.step:
            woken = heappop(self._paused)[2]
            if not woken.done:
                self._ready.append(actor)
                self._switch(actor, woken)
                if actor.process.dead:
                    raise Killed
        return effect

    def fault(self, actor: Actor, effect: Effect, where: str) -> str:
        """Return the words by which an error is known to come from a fault that struck now."""
        self._faults += 1
        text = f"injected fault {self._faults}: {effect.value} at {where}"
        actor.struck.append(text)
        return text

    def rest(self, steps: int) -> None:
        """Have others go on for so many operations."""
        actor = self.current
        assert actor is not None
        self._order += 1
        heappush(self._paused, (self.step + steps, self._order, actor))
        self._give_way(actor)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Have the actor wait until the condition holds."""
        actor = self.current
        assert actor is not None
        if actor.process.dead:
            raise Killed
        if condition():
            return
        actor.condition = condition
        self._blocked.append(actor)
        self._give_way(actor)

    def kill(self, process: Process) -> None:
        """Kill a process: its actors end here and now, this one too if it is one of them, by raising Killed."""
        me = self.current
        assert me is not None
        if process.dead:
            return
        process.dead = True
        if self.trace is not None:
            self.trace.append(f"{self.step:5d} killed: {process.name}")
        with self.silence():
            self.on_kill(process)
        for actor in process.actors:
            if actor is not me and not actor.done:
                self._unwind(actor, me)
        if me.process is process:
            raise Killed

    def fail(self, problem: str) -> None:
        """End the simulation with a problem."""
        if self.problem is None:
            self.problem = problem
        raise SimulationFailed

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Do what is no part of the simulation."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    # What runs it.

    def run(self, name: str, process: Process, run: Callable[[], None]) -> None:
        """Run an actor, and all that it and its like spawn, to the end."""
        self.spawn(name, process, run)
        self._resume(self._pick())
        self._main.acquire()
        # Whoever is left, after a problem, lets go of what it holds.
        for actor in [*self._ready, *(entry[2] for entry in self._paused), *self._blocked]:
            actor.process.dead = True
            if not actor.done:
                self._unwind(actor, None)
        self.current = None

    def _unwind(self, actor: Actor, me: Actor | None) -> None:
        actor.process.dead = True
        # One that has not begun yet is begun: it may hold locks already, which its end lets go.
        lock = self._main if me is None else me.baton
        self._unwinding.append(lock)
        self._resume(actor)
        lock.acquire()
        self.current = me

    def _give_way(self, actor: Actor) -> None:
        following = self._pick()
        if following is None:
            # Nobody can go on, not even this one: what it waits for does not happen.
            self.fail(f"all wait: {', '.join(blocked.name for blocked in self._blocked)}")
        if following is not actor:
            self._switch(actor, following)
        if actor.process.dead:
            raise Killed

    def _switch(self, actor: Actor, following: Actor) -> None:
        self._resume(following)
        actor.baton.acquire()

    def _resume(self, actor: Actor | None) -> None:
        self.current = actor
        if actor is None:
            self._main.release()
        elif actor.thread is None:
            actor.thread = threading.Thread(target=self._body, args=(actor,), name=actor.name, daemon=True)
            actor.thread.start()
        else:
            actor.baton.release()

    def _pick(self) -> Actor | None:
        """Take the actor that goes on next, None if there is none that can."""
        if self.problem is not None:
            return None
        if self._blocked:
            waiting = self._blocked
            self._blocked = []
            for actor in waiting:
                if actor.done:
                    continue
                assert actor.condition is not None
                (self._ready if actor.condition() else self._blocked).append(actor)
        while self._paused and (self._paused[0][0] <= self.step):
            self._ready.appendleft(heappop(self._paused)[2])
        while self._ready:
            actor = self._ready.popleft()
            if not actor.done:
                return actor
        while self._paused:
            wakes_at, _, actor = heappop(self._paused)
            if not actor.done:
                self.step = max(self.step, wakes_at)
                return actor
        return None

    def _body(self, actor: Actor) -> None:
        try:
            actor.run()
        except (Killed, SimulationFailed):
            pass
        except BaseException as failure:
            if self.problem is None and not actor.process.dead:
                import traceback

                self.problem = f"{actor.name} broke: {failure!r}\n{traceback.format_exc()}"
        actor.done = True
        if self._unwinding:
            self._unwinding.pop().release()
            return
        following = self._pick()
        if following is None and self.problem is None and self._blocked:
            self.problem = f"all wait: {', '.join(blocked.name for blocked in self._blocked)}"
        self._resume(following)
