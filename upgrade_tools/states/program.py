"""A program, as far as its state is concerned: which stage has which stores, and which topics are its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from statestore.bytestore.kinds.store_spec import StoreSpec


@dataclass(frozen=True)
class ProgramStage:
    """The stores of a stage that Kafka Streams has changelogs of."""

    stores: tuple[StoreSpec, ...]
    beside: tuple[str, ...] = ()
    """Its stores that Kafka Streams does not have: they begin empty, and are filled from the others."""
    reads: tuple[str, ...] = ()
    """The topics that its records come from, also repartition topics, by their names in the program."""
    topology: tuple[dict[str, Any], ...] = ()
    """Its nodes, as a state records them; empty if they are not known."""


@dataclass(frozen=True)
class Program:
    """The stages of a program, in their order; if only its stores are known, it is one stage."""

    stages: tuple[ProgramStage, ...]
    input_topics: tuple[str, ...] = ()
    """The topics that it reads, apart from its own; empty if they are not known."""
    repartition_topics: tuple[str, ...] = ()
    expiry_headers: Mapping[str, str] = field(default_factory=dict)
    """The header by which entries of a store expire, by store."""

    @classmethod
    def of_stores(cls, specs: Sequence[StoreSpec]) -> Program:
        """Return the program of which only the stores are known."""
        return cls((ProgramStage(tuple(specs)),))

    @classmethod
    def read(cls, name: str) -> Program:
        """Return the program MODULE:NAME, which another process imports from the working directory, or sys.path.

        Raises ValueError if there is none, or if it can't run in stages.
        """
        # These tools do without what runs a program.
        command = [sys.executable, "-m", "statestore.processor", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            said = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "no message")
            raise ValueError(f"{name} can't be read ({said.removeprefix('error: ')})")
        found = json.loads(done.stdout)
        stages = (
            ProgramStage(
                tuple(map(StoreSpec.from_json, each["stores"])),
                tuple(each["beside"]),
                tuple(each["reads"]),
                tuple(each["topology"]),
            )
            for each in found["stages"]
        )
        topics = tuple(found["input_topics"] or ()), tuple(found["repartition_topics"])
        return cls(tuple(stages), *topics, found["expiry_headers"])

    @property
    def stores(self) -> dict[str, StoreSpec]:
        """Its stores by name, those of later stages last: a copy is the same store."""
        return {spec.name: spec for stage in self.stages for spec in stage.stores}

    def with_stores(self, names: Collection[str]) -> Program:
        """Return the program with these stores only. Raises ValueError if it does not have one of them."""
        known = self.stores
        for name in names:
            if name not in known:
                raise ValueError(f"the program has no store {name!r}, but {', '.join(known) or 'none'}")
        chosen = (
            replace(stage, stores=tuple(spec for spec in stage.stores if spec.name in names)) for stage in self.stages
        )
        headers = {name: header for name, header in self.expiry_headers.items() if name in names}
        return replace(self, stages=tuple(chosen), expiry_headers=headers)
