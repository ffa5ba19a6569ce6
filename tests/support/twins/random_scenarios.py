"""Draws scenarios for the topologies of `twin_topologies`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.java.driver import Scenario, Step, advance, advance_time, input_topic, pipe, put, read, read_one

HEADERS = (("a", "1"), ("a", None), ("drop", "x"), ("", ""), ("ü", "\u20ac"))


@dataclass(frozen=True)
class Inputs:
    """What is drawn for a topology: values of None are tombstones, and time goes on by up to `jump_ms` a record.

    Every other seed draws from `few_times_ms` instead, if there are some, so that times collide.
    """

    keys: tuple[str | None, ...] = ("a", "b", "ä")
    values: tuple[str | None, ...] = ("x", "yy", "", None)
    topics: tuple[str, ...] = ("in",)
    jump_ms: int = 20
    advances_ms: tuple[int, ...] = (0, 1, 5, 10, 33)
    outputs: tuple[str, ...] = ("out",)
    written_stores: tuple[str, ...] = ()
    few_times_ms: tuple[int, ...] = ()


SEGMENT_JUMP_MS = 9_000
FAN_OUT = ("a1b1c1", "c9b9a9a9b9", "a5c1b1a2", "b1", "", "c3a3b3c2b2a2c1", "a1a1b1b1c1c1a1", None)

INPUTS = {
    "stateless": Inputs(keys=("a", "", None), outputs=("out-first", "out-direct")),
    "running-total": Inputs(values=("x", "yy", "zzz", None)),
    "counts": Inputs(values=("x", "yy", "i", "d", None), written_stores=()),
    "windows": Inputs(jump_ms=SEGMENT_JUMP_MS, values=("x", "y", None)),
    "sessions": Inputs(jump_ms=SEGMENT_JUMP_MS, values=("x", "y", None)),
    "versions": Inputs(
        keys=("a", "b"),
        jump_ms=SEGMENT_JUMP_MS,
        values=("x", "y", "d", None),
        few_times_ms=(9_990, 10_000, 50_000),
    ),
    "stream-punctuation": Inputs(),
    "wall-clock-punctuation": Inputs(),
    "global-store": Inputs(topics=("in", "table-topic"), values=("x", "w", "wx", None)),
    "linked": Inputs(topics=("in", "in", "middle"), outputs=("out", "middle")),
    "fan-out-to-sources": Inputs(topics=("in", "in", "topic-b"), values=FAN_OUT),
    "shared-store": Inputs(topics=("left", "right"), written_stores=("shared",)),
    "routing": Inputs(keys=("a", None), values=("l", "r", "c", "all", None), outputs=("out-both", "out-copy")),
    "cached": Inputs(jump_ms=1_500),
    "metadata": Inputs(keys=("a", None), topics=("in", "also-in")),
}


def draw_scenario(topology: str, seed: int) -> Scenario:
    """The same one for the same seed."""
    random = Random(f"{topology} {seed}")
    inputs = INPUTS[topology]
    time_ms = random.choice((0, 3, 1_000))
    steps: list[Step] = []
    if random.random() < 0.2:
        steps.append(input_topic(inputs.topics[0], random.choice((0, 500)), random.choice((0, 7))))
    for _ in range(random.randint(1, 25)):
        time_ms += random.randint(0, inputs.jump_ms) if random.random() < 0.7 else 0
        drawn_ms = random.choice(inputs.few_times_ms) if inputs.few_times_ms and seed % 2 else time_ms
        steps += _drawn(random, inputs, drawn_ms, has_input=bool(steps) and steps[0][0] == "input")
    return Scenario(topology, tuple(steps), random.choice((0, 997, 1000, 1003, 2025)), persistent=seed % 10 == 0)


def _drawn(random: Random, inputs: Inputs, time_ms: int, *, has_input: bool) -> list[Step]:
    chance = random.random()
    if chance < 0.12:
        return [advance(random.choice(inputs.advances_ms))]
    if chance < 0.15:
        return [read(random.choice((*inputs.outputs, "nowhere")))]
    if chance < 0.18:
        return [read_one(random.choice((*inputs.outputs, "nowhere")))]
    if chance < 0.20 and has_input:
        return [advance_time(inputs.topics[0], random.randint(0, 30))]
    if chance < 0.24 and inputs.written_stores:
        store = random.choice(inputs.written_stores)
        return [put(store, random.choice(inputs.keys), random.choice(inputs.values)), advance(0)]
    late_ms = random.randint(0, 4 * inputs.jump_ms) if random.random() < 0.2 else 0
    timestamp_ms = None if random.random() < 0.1 else max(0, time_ms - late_ms)
    headers = [random.choice(HEADERS) for _ in range(random.choice((0, 0, 1, 2, 3)))]
    value = random.choice(inputs.values)
    return [pipe(random.choice(inputs.topics), random.choice(inputs.keys), value, timestamp_ms, headers)]


def draw_graph(seed: int) -> Scenario:
    """A topology to be described, of up to five sources, with what else there is; all that is added is used."""
    random = Random(seed)
    names = [*NAMES]
    random.shuffle(names)
    added: list[tuple[Any, ...]] = []
    sources: list[str] = []
    processors: list[str] = []
    for number in range(random.randint(1, 5)):
        sources.append(names.pop())
        added.append(("source", sources[-1], tuple(random.sample(TOPICS[number], random.randint(1, 4)))))
        for _ in range(random.randint(1, 4)):
            # The latest source among them, so that each has a child.
            parents = dict.fromkeys([sources[-1], *random.sample(processors + sources, random.choice((0, 0, 0, 1)))])
            if processors and random.random() < 0.5:
                parents = dict.fromkeys(random.sample(processors, min(len(processors), random.randint(1, 2))))
            if not any(sources[-1] in node[-1] for node in added[1:] if node[0] in ("processor", "sink")):
                parents[sources[-1]] = None
            if random.random() < 0.3:
                added.append(("sink", names.pop(), f"to-{len(added)}", tuple(parents)))
            else:
                processors.append(names.pop())
                added.append(("processor", processors[-1], tuple(parents)))
        if random.random() < 0.3:
            added.append(("global", names.pop(), names.pop(), f"global-{len(added)}", names.pop()))
        for _ in range(random.choice((0, 1, 2)) if processors else 0):
            users = random.sample(processors, min(len(processors), random.choice((1, 1, 2))))
            added.append(("store", names.pop(), tuple(users)))
    return Scenario("graph", graph=tuple(added))


NAMES = [f"{letter}{word}" for letter in "abcdefgz" for word in ("", "-source", "Processor", "_1", ".x")]
TOPICS = [[f"{word}-{number}" for word in ("in", "orders", "Zeta", "a", "long.name")] for number in range(5)]
