"""Commands for changelog topics of Kafka Streams: state moves from an application to a query, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.state_filling import with_expiry_stores
from statestore.recovery.metadata.state_metadata import ShardBy, stage_name
from upgrade_tools.cli import options as o
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.documents import Document
from upgrade_tools.cli.printing.output import errors, phase_bars, print_json, progress_bar, results, say
from upgrade_tools.states.program import Program
from upgrade_tools.states.store_argument import parse_stores

if TYPE_CHECKING:
    from upgrade_tools.changelogs.cluster import Cluster, Offsets
    from upgrade_tools.changelogs.restoring import RestoredStore

_CLIENT = "Client"


Servers = Annotated[str, typer.Argument(metavar="BOOTSTRAP", help="host:port of a broker, or several with commas.")]
ApplicationId = Annotated[
    str,
    # Checked at once: the client ends the process for a group without a name.
    typer.Option(
        "--application-id", help="application.id of Kafka Streams, also its consumer group.", callback=o.application_id
    ),
]
ClientConfig = Annotated[
    str | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        help="File of librdkafka's client properties, such as SASL or TLS: name=value, one a line.",
        rich_help_panel=_CLIENT,
    ),
]
Stores = Annotated[
    list[str],
    typer.Option(
        "--store",
        metavar="NAME:KIND[:OPTION=MS,...]",
        help="A store to restore, with its kind: totals:headers-kv, or visits:headers-window:window-size-ms=60000,"
        "retention-ms=3600000. Give it once for each store.",
    ),
]
SomeStores = Annotated[
    list[str],
    typer.Option(
        "--store",
        metavar="NAME[:KIND[:OPTION=MS,...]]",
        help="A store to restore: with --program its name, else with its kind, as totals:headers-kv, or "
        "visits:headers-window:window-size-ms=60000,retention-ms=3600000. Give it once for each store.",
    ),
]
ProgramOption = Annotated[
    str | None,
    typer.Option(
        "--program",
        metavar="MODULE:NAME",
        help="The query's topology, or a function that returns it: it says which stage has which store, and its kind. "
        "With it, --store names some of its stores (default: all).",
        callback=o.not_empty,
    ),
]
InputTopics = Annotated[
    list[str],
    typer.Option(
        "--input-topic", metavar="TOPIC", help="A topic that the query reads (default: all that the group has read)."
    ),
]
Transactional = Annotated[
    bool,
    typer.Option(
        "--transactional", help="The application processes exactly once: its transactions leave gaps in the offsets."
    ),
]

AcceptDeleted = Annotated[
    bool,
    typer.Option(
        "--accept-deleted",
        help="Restore without windows and sessions that the broker deleted before they expired in the store.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Move state through the changelog topics of Kafka Streams.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    add_command(group, "restore", None, restore)
    add_command(group, "to-state", None, to_state)
    add_command(group, "emit", None, emit)
    add_command(group, "offsets", None, offsets)
    app.add_typer(group, name="changelog", rich_help_panel="Kafka")


def restore(
    servers: Servers,
    target: Annotated[
        str, typer.Argument(metavar="TO", help="An empty directory: STATE_DIR/APPLICATION_ID.", callback=o.not_empty)
    ],
    application_id: ApplicationId,
    store: Stores,
    subtopology: Annotated[int, typer.Option(min=0, help="The first number of the task directories' names.")] = 0,
    input_topic: InputTopics = [],  # noqa: B006  # typer copies it
    transactional: Transactional = False,
    accept_deleted: AcceptDeleted = False,
    client_config: ClientConfig = None,
    as_json: o.JsonOption = False,
) -> None:
    """Make task directories of Kafka Streams from changelogs, as the application would restore them.

    To go back to a store without headers, name an older kind than the store has now.
    """
    specs, cluster = _specs(store), _cluster(servers, client_config)
    from upgrade_tools.changelogs.reading import find_changelogs, refuse_different_partitions
    from upgrade_tools.changelogs.to_directories import restore_directories

    changelogs = find_changelogs(cluster, application_id, specs, transactional=transactional)
    refuse_different_partitions(changelogs)
    # Before the directories are made, as it may fail.
    begins = _starting_offsets(cluster, application_id, input_topic, goes_on_itself=True)
    with _progress(("restoring", sum(changelog.span for changelog in changelogs))) as (advance,):
        restored = restore_directories(
            cluster,
            application_id,
            changelogs,
            Path(target),
            subtopology=subtopology,
            accept_deleted=accept_deleted,
            on_records=advance,
        )
    document = {"directory": target, "tasks": len(changelogs[0].logs), "stores": _stores(specs, restored)}
    _show(document, as_json, begins)


def to_state(
    servers: Servers,
    location: Annotated[str, typer.Argument(help="Path or URI of an empty location.", callback=o.not_empty)],
    application_id: ApplicationId,
    store: SomeStores = [],  # noqa: B006  # typer copies it
    program: ProgramOption = None,
    shard_by: Annotated[ShardBy, typer.Option(help="How the query will place records: its shard_by.")] = ShardBy.KEY,
    input_topic: InputTopics = [],  # noqa: B006  # typer copies it
    transactional: Transactional = False,
    accept_deleted: AcceptDeleted = False,
    expiry_header: o.ExpiryHeaderOption = None,
    trust_keys: o.TrustKeysOption = False,
    work_dir: o.WorkDirOption = None,
    client_config: ClientConfig = None,
    as_json: o.JsonOption = False,
) -> None:
    """Make a state that a query starts from, with a shard for each partition, and print where its input begins.

    Of a program of several stages it makes the state of each. Where stores have different numbers of partitions, there
    are as many shards as their least common multiple.
    """
    moved, cluster = _program(program, store, expiry_header), _cluster(servers, client_config)
    from upgrade_tools.changelogs.stage_logs import find_stage_logs, refuse_other_changelogs, repartition_topic
    from upgrade_tools.changelogs.to_state import RESTORING, make_states

    cluster.refuse_running(application_id)
    own = [repartition_topic(application_id, topic) for topic in moved.repartition_topics]
    if program is not None and not store:
        refuse_other_changelogs(cluster, application_id, moved)
    begins = _starting_offsets(cluster, application_id, input_topic or moved.input_topics, repartition_topics=own)
    stages = find_stage_logs(cluster, application_id, moved, begins, transactional=transactional)
    with phase_bars(None, {RESTORING: sum(stage.span for stage in stages)}) as on_entries:
        made = make_states(
            cluster,
            application_id,
            stages,
            DurableLocation(location),
            shard_by=shard_by.value,
            accept_deleted=accept_deleted,
            trust_keys=trust_keys,
            work_dir=work_dir,
            expiry_headers=moved.expiry_headers,
            on_entries=on_entries,
        )
    restored = {name: stores for state in made for name, stores in state.restored.items()}
    document = {
        "location": location,
        "stateId": _of_stages([state.metadata.state_id for state in made]),
        "shards": _of_stages([state.metadata.shards for state in made]),
        "stores": _stores([*moved.stores.values()], restored),
    }
    _show(document, as_json, begins)


def emit(
    where: o.Where,
    servers: Servers,
    application_id: ApplicationId,
    *,
    of_store: o.StoreGroup,
    spans: o.SpanGroup,
    subtopology: o.SubtopologyOption = None,
    committed: o.CommittedGroup,
    append: Annotated[
        bool, typer.Option("--append", help="Topics may have records already; what differs is added to them.")
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Partitions of new topics (default: as many as a state location has shards)."),
    ] = None,
    transactional: Transactional = False,
    work_dir: o.WorkDirOption = None,
    client_config: ClientConfig = None,
    as_json: o.JsonOption = False,
) -> None:
    """Write a state to an application's changelog topics, from which it restores, and check what was written."""
    cluster = _cluster(servers, client_config)
    from upgrade_tools.changelogs.emitting import Emission, logged_stores

    states = o.states_at_each_stage(where, committed, of_store, spans, subtopology=subtopology, work_dir=work_dir)
    logged = logged_stores(states)
    with _progress(("checking", None), ("writing", None)) as (checked, advance):
        emitted = Emission(
            logged, cluster, application_id, partitions, append, transactional, work_dir, checked, advance
        ).run()
    stores = [
        {"name": name, "topic": done.topic, "created": done.created, "entries": done.entries, "written": done.written}
        for name, done in emitted.stores.items()
    ]
    for note in emitted.notes:
        say(errors(), f"note: {note}")
    _show({"stores": stores, **({"notes": list(emitted.notes)} if as_json else {})}, as_json, None)


def offsets(
    servers: Servers,
    application_id: ApplicationId,
    set_to: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="FILE",
            help="File with what `python -m statestore.spark offsets CHECKPOINT` prints; - is stdin.",
        ),
    ] = None,
    input_topic: InputTopics = [],  # noqa: B006  # typer copies it
    client_config: ClientConfig = None,
) -> None:
    """Print an application's committed offsets as Spark's `startingOffsets`, or change them with --set."""
    cluster = _cluster(servers, client_config)
    from upgrade_tools.changelogs.group_offsets import offsets_json, parse_source_offsets, set_group_offsets

    if set_to is None:
        say(results(), offsets_json(_starting_offsets(cluster, application_id, input_topic)))
        return
    if input_topic:
        raise typer.BadParameter("--input-topic does not go with --set, whose file names the topics")
    wanted = parse_source_offsets(application_id, _text(set_to))
    set_group_offsets(cluster, application_id, wanted)
    say(results(), f"{application_id} goes on at {offsets_json(wanted)}")


def _specs(stores: Sequence[str]) -> list[StoreSpec]:
    try:
        return [argument.spec() for argument in parse_stores(stores)]
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--store") from cause


def _names(stores: Sequence[str]) -> list[str]:
    """Return the names of some stores of a program, which says itself what they are."""
    try:
        arguments = parse_stores(stores)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--store") from cause
    if any(argument.says_more for argument in arguments):
        raise typer.BadParameter("the program says what its stores are: name them only", param_hint="--store")
    return [argument.name for argument in arguments]


def _program(name: str | None, stores: Sequence[str], expiry_header: Sequence[str] | None) -> Program:
    """Return the program that is to be moved, or one of which only stores are known."""
    headers = o.expiry_headers(expiry_header)
    if name is None:
        if not stores:
            raise typer.BadParameter("say with --program what the query runs, or name its stores with --store")
        program = Program.of_stores(_specs(stores))
    else:
        names = _names(stores)
        try:
            program = Program.read(name)
            program = program.with_stores(names) if names else program
        except ValueError as cause:
            raise typer.BadParameter(str(cause), param_hint="--program") from cause
    try:
        with_expiry_stores(program.stores.values(), {**program.expiry_headers, **headers})
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--expiry-header") from cause
    return replace(program, expiry_headers={**program.expiry_headers, **headers})


def _cluster(servers: str, client_config: str | None) -> Cluster:
    """Return the cluster. Its client is an extra, so modules that need it are imported only where they are used."""
    try:
        from upgrade_tools.changelogs.cluster import Cluster, read_client_options
    except ModuleNotFoundError as missing:
        if missing.name != "confluent_kafka":
            raise
        raise typer.BadParameter("this needs confluent-kafka: pip install 'statestore[kafka]'") from missing
    try:
        options = {} if client_config is None else read_client_options(_text(client_config).splitlines())
        return Cluster(servers, options)
    except ValueError as cause:
        raise typer.BadParameter(f"--client-config: {cause}") from cause


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise typer.BadParameter(f"{file} can't be read ({cause})") from cause


@contextmanager
def _progress(*steps: tuple[str, int | None]) -> Iterator[list[Callable[[int], None]]]:
    """Hand out functions that advance the progress bar of each step; a step is its name and its total of records."""
    with progress_bar() as progress:
        tasks = [progress.add_task(doing, total=total) for doing, total in steps]
        yield [partial(progress.advance, task) for task in tasks]


def _starting_offsets(
    cluster: Cluster,
    application_id: str,
    topics: Sequence[str],
    *,
    repartition_topics: Sequence[str] = (),
    goes_on_itself: bool = False,
) -> Offsets:
    from upgrade_tools.changelogs.group_offsets import starting_offsets

    found = starting_offsets(
        cluster, application_id, topics, repartition_topics=repartition_topics, goes_on_itself=goes_on_itself
    )
    if not found:
        begins = "its input begins at the earliest offsets. To print those, name the query's topics with --input-topic"
        say(errors(), f"{application_id} has committed no offsets: {begins}")
    return found


def _stores(specs: Sequence[StoreSpec], restored: dict[str, list[RestoredStore]]) -> list[Document]:
    return [
        {
            "name": spec.name,
            "kind": StoreType.of(spec).value,
            "records": sum(store.records for store in restored[spec.name]),
        }
        for spec in specs
    ]


def _of_stages(values: list[Any]) -> Any:
    """Return the only value, or that of each stage by its name, as `stateful` takes it."""
    return values[0] if len(values) == 1 else {stage_name(number): value for number, value in enumerate(values)}


def _show(document: Document, as_json: bool, begins: Offsets | None) -> None:
    """Print what was made, and where a query on it begins to read."""
    if as_json:
        print_json({**document, **({} if begins is None else {"startingOffsets": _json(begins)})})
        return
    console = results()
    of_all = _facts(document, "stores")
    if of_all:
        say(console, of_all)
    for store in document["stores"]:
        say(console, f"  {store['name']}: {_facts(store, 'name')}")
    if begins is not None:
        say(console, f"startingOffsets {_json(begins)}")


def _facts(document: Document, left_out: str) -> str:
    """Return the fields of a document in a line, all but one."""
    shown = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in document.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items() if name != left_out)


def _json(begins: Offsets) -> str:
    from upgrade_tools.changelogs.group_offsets import offsets_json

    return offsets_json(begins)
