"""The options that commands share, and what they become."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from statestore.bytestore.kinds.store_spec import StoreType, check_store_name
from statestore.errors.new_state import StatePointersError
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.headers.expiry_header import EXPIRY_HEADER
from statestore.recovery.commit.pointer import CommitPointer, parse_pointers
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.schemes import problem_of_checkpoint
from statestore.recovery.metadata.state_metadata import METADATA_NAME, states_at
from upgrade_tools.cli.option_groups import OptionGroup
from upgrade_tools.cli.printing.output import errors, say
from upgrade_tools.errors import UnknownLayoutError
from upgrade_tools.states.detection import open_state, open_states
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import State, StateOptions

_WHAT = "What to read"
_SPARK = "What is committed of a state location"


def not_empty(path: str | None) -> str | None:
    """Return a path or URI; exits with a usage error if it is empty, which would mean the working directory."""
    if path == "":
        raise typer.BadParameter("it is empty, as if from a variable that is not set. Name a path or URI")
    return path


def application_id(name: str | None) -> str | None:
    """Return an application's id; exits with a usage error if names of topics can't begin with it."""
    try:
        return None if name is None else check_store_name(name)
    except ValueError as cause:
        raise typer.BadParameter(f"an application's id must be valid in names of topics: {cause}") from cause


Where = Annotated[
    str,
    typer.Argument(
        metavar="DIR|LOCATION", help="A directory, or the path or URI of a state location.", callback=not_empty
    ),
]
From = Annotated[
    str, typer.Argument(metavar="FROM", help="Path or URI of the state location; not changed.", callback=not_empty)
]
To = Annotated[str, typer.Argument(metavar="TO", help="Path or URI of an empty location.", callback=not_empty)]
StoreOption = Annotated[str | None, typer.Option("--store", help="One store of several.", rich_help_panel=_WHAT)]
KindOption = Annotated[
    StoreType | None,
    typer.Option("--kind", help="The kind of the store, if its files do not say.", rich_help_panel=_WHAT),
]
WindowSizeOption = Annotated[
    int | None,
    typer.Option(
        "--window-size-ms",
        min=0,
        max=MAX_TIME_MS,
        help="The size of windows, which is not in the files.",
        rich_help_panel=_WHAT,
    ),
]
RetentionOption = Annotated[
    int | None,
    typer.Option(
        "--retention-ms",
        min=0,
        max=MAX_TIME_MS,
        help="How long windows, sessions and versions are kept.",
        rich_help_panel=_WHAT,
    ),
]
SegmentIntervalOption = Annotated[
    int | None,
    typer.Option(
        "--segment-interval-ms", min=1, max=MAX_TIME_MS, help="How much time a segment spans.", rich_help_panel=_WHAT
    ),
]
SubtopologyOption = Annotated[
    int | None,
    typer.Option(
        "--subtopology", min=0, help="Whose tasks to read in an application's directory.", rich_help_panel=_WHAT
    ),
]
ApplicationIdOption = Annotated[
    str | None,
    typer.Option(
        "--application-id",
        help="application.id of Kafka Streams, if the files do not say.",
        rich_help_panel=_WHAT,
        callback=application_id,
    ),
]
PointersOption = Annotated[
    str | None,
    typer.Option(
        "--pointers",
        metavar="FILE",
        help="File with what `python -m statestore.spark pointers CHECKPOINT` prints; - is stdin.",
        rich_help_panel=_SPARK,
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help="The query's checkpoint, read with Spark (default: the head).",
        rich_help_panel=_SPARK,
        callback=not_empty,
    ),
]
WorkDirOption = Annotated[
    str | None,
    typer.Option(
        "--work-dir",
        metavar="DIR",
        help="Directory with room for one shard (default: a temporary one).",
        callback=not_empty,
    ),
]
ExpiryHeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--expiry-header",
        metavar="STORE[=HEADER]",
        help=f"The header by which entries of a store expire, once for each store (default: {EXPIRY_HEADER}).",
    ),
]
TrustKeysOption = Annotated[
    bool,
    typer.Option("--trust-keys", help="Assume that stores with one old shard, or partition, are keyed like records."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@dataclass(frozen=True)
class StoreGroup(OptionGroup):
    """Which store is meant, and what the files do not say about it."""

    store: StoreOption = None
    kind: KindOption = None
    window_size_ms: WindowSizeOption = None


@dataclass(frozen=True)
class SpanGroup(OptionGroup):
    """How long entries are kept, and in segments of what length."""

    retention_ms: RetentionOption = None
    segment_interval_ms: SegmentIntervalOption = None


@dataclass(frozen=True)
class TaskGroup(OptionGroup):
    """Whose tasks are meant, of an application's directory."""

    subtopology: SubtopologyOption = None
    application_id: ApplicationIdOption = None


@dataclass(frozen=True)
class CommittedGroup(OptionGroup):
    """What is committed of a state location, given in one of two ways."""

    pointers: PointersOption = None
    checkpoint: CheckpointOption = None

    def read(self, location: str) -> list[CommitPointer] | None:
        """Return the commit pointers, None without either option. Raises StatePointersError."""
        if self.pointers is not None:
            return read_pointers_file(location, self.pointers)
        return None if self.checkpoint is None else pointers_of_checkpoint(location, self.checkpoint)

    @property
    def needs_spark(self) -> bool:
        """Whether `read` starts Spark."""
        return self.pointers is None and self.checkpoint is not None


def pointers_of_checkpoint(location: str, checkpoint: str, batch_id: int | None = None) -> list[CommitPointer]:
    """Return the commit pointers in a checkpoint, after the last batch or an earlier one.

    Only Spark can read it, which is done in another process. Raises StatePointersError.
    """
    _refuse_missing(location, checkpoint)
    command = [sys.executable, "-m", "statestore.spark", "pointers", checkpoint]
    if batch_id is not None:
        command += ["--batch-id", str(batch_id)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "no message")
        raise StatePointersError(location, problem=f"Spark can't read the checkpoint {checkpoint} ({said})")
    return parse_pointers(done.stdout)


def _refuse_missing(location: str, checkpoint: str) -> None:
    """Raise UnknownLayoutError or StatePointersError if either is missing: Spark would take long to find out."""
    if not states_at(DurableLocation(location)):
        raise UnknownLayoutError(location, found=f"no {METADATA_NAME}")
    problem = problem_of_checkpoint(checkpoint)
    if problem is not None:
        raise StatePointersError(location, problem=problem)


def expiry_headers(given: Sequence[str] | None) -> dict[str, str]:
    """Return the header by which the entries of each store expire; exits with a usage error for an empty name."""
    headers = {}
    for text in given or ():
        store, named, header = text.partition("=")
        if not store or (named and not header):
            raise typer.BadParameter(f"{text!r} is not STORE or STORE=HEADER", param_hint="--expiry-header")
        headers[store] = header or EXPIRY_HEADER
    return headers


def state_at(path: str, committed: CommittedGroup, *groups: OptionGroup, **chosen: Any) -> State:
    """Return the state at a path or URI; `chosen` are fields of `StateOptions`, beside those of the groups.

    Of a state location without pointers or checkpoint it is what the head says, and a line on stderr says so.
    """
    for group in groups:
        chosen.update(group.chosen())
    check_state_at(path, committed, **chosen)
    state = open_state(path, StateOptions(pointers=committed.read(path), **chosen))
    if isinstance(state, LocationState) and state.options.pointers is None:
        state.read_head()
        if state.head is not None:
            say(errors(), f"{state.path}: as of {state.head.describe()}")
    return state


def states_at_each_stage(path: str, committed: CommittedGroup, *groups: OptionGroup, **chosen: Any) -> list[State]:
    """Return the states of a query's stages at a path or URI, or the one that is there; else as `state_at`.

    They are written elsewhere, beside the checkpoint's offsets: a head, which may be a batch behind these, won't do.
    """
    for group in groups:
        chosen.update(group.chosen())
    if committed.needs_spark:
        _refuse_missing(path, str(committed.checkpoint))
        open_states(path, StateOptions(**chosen))
    states = open_states(path, StateOptions(pointers=committed.read(path), **chosen))
    for state in states:
        if isinstance(state, LocationState) and not state.knows_pointers:
            raise StatePointersError(
                state.path,
                problem="the query's checkpoint records what is committed, and a head may be behind its offsets. Name "
                "it with --checkpoint, or give what `python -m statestore.spark pointers CHECKPOINT` prints with "
                "--pointers",
            )
    return states


def check_state_at(path: str, committed: CommittedGroup, **chosen: Any) -> None:
    """If reading the pointers starts Spark, raise first what is wrong with the other options of a state."""
    if committed.needs_spark:
        _refuse_missing(path, str(committed.checkpoint))
        open_state(path, StateOptions(**chosen))


def read_pointers_file(location: str, file: str) -> list[CommitPointer]:
    """Return the pointers in `file`, "-" for stdin. Raises StatePointersError, CommitPointerError."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise StatePointersError(location, problem=f"the commit pointers can't be read ({cause})") from cause
    return parse_pointers(text)
