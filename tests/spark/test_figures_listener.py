"""What the listener says of a batch, and that nothing harms the query. Progress is Spark's own, as it is in JSON."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from pyspark.sql.streaming.listener import QueryTerminatedEvent

from statestore.recovery.commit.figures import (
    DeltaFigures,
    RestoreFigures,
    SizeFigures,
    SnapshotFigures,
    SpillFigures,
    StoreFigures,
    UpgradeFigures,
)
from statestore.spark import BatchFigures, StateStoreListener, batch_figures
from statestore.spark.figures import METRICS_PREFIX, RecordFigures, ShardFigures, TimeFigures
from tests.support.spark.told import QUERY, RUN, TIMES, progress, shard

SPILLED = "to local disk: a larger MemoryOptions.state_bytes is faster"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_figures_go_to_json_and_back() -> None:
    figures = shard(
        2,
        restore=RestoreFigures(1, 2, 3, 4.5),
        spill=SpillFigures(1, 2),
        snapshot=SnapshotFigures(1, 1, 1, 5, 6.5),
        upgrade=UpgradeFigures(1, 2),
    )
    assert ShardFigures.from_json(figures.to_json()) == figures
    sized = replace(figures, sizes={"a": SizeFigures(1, 2, 3)})
    assert ShardFigures.from_json(sized.to_json()) == sized
    nothing = ShardFigures(shard=0, version=0)
    assert nothing.to_json() == '{"shard":0,"version":0,"stores":{}}', "there may be a thousand shards"
    assert ShardFigures.from_json(nothing.to_json()) == nothing


def test_a_batch_has_the_figures_of_its_shards_and_their_sums() -> None:
    (figures,) = batch_figures(progress(shard(1), shard(0)).progress)
    assert figures == BatchFigures(
        query_id=str(QUERY),
        run_id=str(RUN),
        query_name="orders",
        batch_id=3,
        timestamp="2026-01-02T03:04:05.678Z",
        duration_ms=432,
        state_id="state-1",
        state_location="file:///state",
        shards=(shard(0), shard(1)),
    )
    assert (figures.version, figures.slowest) == (8, shard(1))
    assert figures.records == RecordFigures(20, 0, 0, 18)
    assert figures.times == TimeFigures(10.0, 4.0, 6.0, 1.0, 2.0)
    assert figures.delta == DeltaFigures(2, 5_800)
    assert figures.stores == {"totals": StoreFigures(10, 2, 120, 8_000, 2_468)}


def test_a_task_that_ran_again_as_its_output_was_lost_counts_once() -> None:
    """Spark counts every successful run of a task that others read from; what the shard did is the same."""
    again = replace(shard(1), times=TIMES._replace(open_ms=99.0))
    woken_up = shard(1, records=RecordFigures(0, 0, 1, 1))
    (figures,) = batch_figures(progress(shard(0), shard(1), again, woken_up).progress)
    assert [each.shard for each in figures.shards] == [0, 1, 1]
    assert figures.records.process_total == 20
    assert figures.records.punctuate_total == 1


def test_the_first_call_of_a_shard_may_restore_it_in_any_batch(logged: pytest.LogCaptureFixture) -> None:
    listener = StateStoreListener()
    listener.onQueryProgress(progress(shard(0), batch_id=0))
    listener.onQueryProgress(progress(shard(1, restore=RestoreFigures(1, 2, 3, 4.5)), batch_id=1))
    listener.onQueryProgress(progress(shard(1, restore=RestoreFigures(1, 2, 3, 4.5)), batch_id=2))
    assert [level for level, _ in lines(logged)] == ["INFO", "INFO", "WARNING"]


def test_a_batch_that_called_no_shard_and_a_trigger_without_a_batch(logged: pytest.LogCaptureFixture) -> None:
    listener = StateStoreListener()
    listener.onQueryProgress(progress())
    listener.onQueryProgress(progress(observedMetrics={}))
    (figures,) = listener.batches()
    assert (figures.version, figures.slowest, figures.records) == (0, None, RecordFigures())
    assert lines(logged) == [("INFO", "query orders, batch 3: no shard was called")]


def test_a_batch_is_one_line(logged: pytest.LogCaptureFixture) -> None:
    listener = StateStoreListener()
    listener.onQueryProgress(progress(shard(0), shard(1)))
    done = shard(upgrade=UpgradeFigures(4, 5), snapshot=SnapshotFigures(0, 1, 0, 3_210_000, 9.0))
    listener.onQueryProgress(progress(done))
    first = (
        "query orders, batch 3: 20 records in, 18 out; 10 entries put, 2 deleted, 2.47 kB of headers, "
        "5.8 kB of deltas; shards: 2, version 8, the slowest 1 (16 ms)"
    )
    second = (
        "query orders, batch 3: 10 records in, 9 out; 5 entries put, 1 deleted, 1.23 kB of headers, 2.9 kB of deltas; "
        "shards: 1, version 7, the slowest 0 (6 ms); snapshots finished: 1 (3.21 MB uploaded); "
        "entries upgraded: 4 (about 5 left)"
    )
    assert lines(logged) == [("INFO", first), ("INFO", second)]


def held(number: int, entries: int) -> ShardFigures:
    return shard(number, sizes={"<totals>": SizeFigures(entries, 1_000 * entries, 10)})


def test_the_size_of_a_state_is_that_of_all_its_shards_when_they_were_last_called() -> None:
    listener = StateStoreListener()
    listener.onQueryProgress(progress(held(0, 3), held(1, 4), held(1, 4)))
    (figures,) = listener.batches()
    assert figures.sizes == {"<totals>": SizeFigures(7, 7_000, 20)}, "a shard that was called twice counts once"
    listener.onQueryProgress(progress(held(1, 9), batch_id=4))
    assert listener.sizes("state-1") == {"<totals>": SizeFigures(12, 12_000, 20)}
    assert listener.sizes("unknown") == {}


def test_figures_are_a_line_and_a_table_in_a_notebook() -> None:
    (figures,) = batch_figures(progress(held(0, 3)).progress)
    assert str(figures).endswith("; about 3 entries held, in 3 kB of disk and memory")
    page = ElementTree.fromstring(f"<div>{figures._repr_html_()}</div>")
    assert page.findtext("p") == str(figures)
    rows = [[cell.text for cell in row] for row in page.iter("tr")]
    assert rows[1:] == [
        ["<totals>", "3", "3 kB", "10 B", "0", "0", "0 B"],
        ["totals", "0", "0 B", "0 B", "5", "1", "1.23 kB"],
    ]


@pytest.mark.parametrize(
    ("figures", "trouble"),
    [
        (shard(records=RecordFigures(3, 2)), "records dropped that no serde could read: 2"),
        (
            shard(records=RecordFigures(3, 0, 0, 0, 1, 2), failures={"KeyError": 2, "AccessDeniedError": 1}),
            "records refused, or failed on, and left out: 3 (AccessDeniedError 1, KeyError 2)",
        ),
        (
            shard(spill=SpillFigures(1, 999_600)),
            f"spilled 1 MB {SPILLED}",
        ),
        (
            shard(spill=SpillFigures(1, 5_000_000)),
            f"spilled 5 MB {SPILLED}",
        ),
        (shard(snapshot=SnapshotFigures(failed=1)), "snapshots failed: 1; the logs of the executors say why"),
        (
            shard(snapshot=SnapshotFigures(overdue=1)),
            "shards without a snapshot for too long: 1; in the end the query stops",
        ),
    ],
)
def test_what_somebody_should_look_at_is_a_warning(
    logged: pytest.LogCaptureFixture, figures: ShardFigures, trouble: str
) -> None:
    StateStoreListener().onQueryProgress(progress(figures))
    ((level, line),) = lines(logged)
    assert level == "WARNING"
    assert line.endswith(f"the slowest 0 (6 ms); {trouble}")


def test_a_restore_is_a_warning_but_in_the_first_batch_of_a_run(logged: pytest.LogCaptureFixture) -> None:
    listener = StateStoreListener()
    restored = shard(restore=RestoreFigures(1, 1_000, 2_000_000, 321.0))
    listener.onQueryProgress(progress(restored))
    listener.onQueryProgress(progress(restored, batch_id=4))
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, RUN, None, None))
    listener.onQueryProgress(progress(restored, batch_id=5))
    listener.onQueryProgress(progress(restored, batch_id=6, run=uuid.UUID(int=9)))
    levels = [level for level, _ in lines(logged)]
    assert levels == ["INFO", "WARNING", "INFO", "INFO"]
    assert "shards restored: 1 (1000 entries, 2 MB, 321 ms); restored while running" in lines(logged)[1][1]


def test_history_is_bounded_and_asked_by_query() -> None:
    listener = StateStoreListener(history=2)
    for batch_id in range(4):
        listener.onQueryProgress(progress(shard(), batch_id=batch_id))
    assert [figures.batch_id for figures in listener.batches()] == [2, 3]
    assert listener.batches(str(QUERY)) == listener.batches()
    assert listener.batches("another") == []


def test_a_callback_that_fails_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    called = []

    def fail(figures: BatchFigures) -> None:
        called.append(figures.batch_id)
        raise ValueError("no such gauge")

    listener = StateStoreListener(fail)
    for batch_id in range(2):
        listener.onQueryProgress(progress(shard(), batch_id=batch_id))
    assert called == [figures.batch_id for figures in listener.batches()] == [0, 1]
    # Not of the text: another handler may have laid out what was raised.
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(cause) for cause in raised] == ["no such gauge"] * 2
    assert "on_batch failed on batch 1 of query" in caplog.text


def test_figures_that_are_not_understood_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    listener = StateStoreListener()
    strange = {f"{METRICS_PREFIX}state-1": {"state_location": "", "shards": ['{"version":1}']}}
    listener.onQueryProgress(progress(observedMetrics=strange))
    assert listener.batches() == []
    assert f"no figures of batch 3 of query {QUERY}" in caplog.text
