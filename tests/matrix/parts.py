"""What the matrix runs with each Spark: demos, and tests by what they are about, the quickest of each file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Part:
    """Tests about one thing; those of `few` are run where there is little time as well."""

    about: str
    few: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    def nodes(self, *, few: bool) -> tuple[str, ...]:
        """Return what pytest is to run."""
        return self.few if few else (*self.few, *self.more)

    def has(self, module: str, test: str) -> bool:
        """Return whether a test is of this part, by its module and its name without parameters."""
        path = f"{module.replace('.', '/')}.py"
        return bool({path, f"{path}::{test}"} & set(self.nodes(few=False)))


DEMOS: Final = {
    "`make demo`: a running total, from files": "docs/examples/running_total.py",
    "`make demo-kafka`: the same from Kafka to Kafka": "docs/examples/kafka_running_total.py",
}


def _of(file: str, *tests: str) -> tuple[str, ...]:
    """Return tests of a file in tests/spark, all of it if none are named."""
    path = f"tests/spark/{file}.py"
    return tuple(f"{path}::test_{test}" for test in tests) or (path,)


PARTS: Final = (
    Part("What Spark lacks, and what stands in for it", _of("test_spark_versions")),
    Part(
        "Headers in state, a restart, a lost disk, both entry points",
        _of("test_headers_in_state", "each_record_comes_out_once_and_headers_survive_state_and_a_lost_disk"),
    ),
    Part(
        "Checkpoint format 2",
        more=_of("test_headers_in_state", "sparks_second_checkpoint_format_is_gone_on_with_and_read"),
    ),
    Part("Recovery", more=_of("test_recovery", "in_memory_stores_are_restored_from_snapshots_too")),
    Part("Exactly once", more=_of("test_exactly_once", "a_retried_task_after_its_delta_was_written")),
    Part(
        "Exactly once to Kafka: `KafkaTransactions`",
        more=(*_of("test_kafka_sink_rows"), *_of("test_kafka_sink", "the_driver_is_killed_with_all_executors")),
    ),
    Part(
        "Any DataFrame in, columns out: `to_records`, `from_records`",
        _of("test_to_records", "columns_become_records_that_stateful_takes"),
        tuple(path for file in ("to_records", "from_records", "business_columns") for path in _of(f"test_{file}")),
    ),
    Part(
        "State as rows: the data source, `read_store`",
        _of("test_data_source", "a_store_is_rows_with_a_task_for_each_shard"),
        _of(
            "test_data_source",
            "a_retained_version_is_read_as_it_was",
            "changes_applied_to_a_version_make_the_later_one",
        ),
    ),
    Part("Keys and values read as what serdes say", more=_of("test_data_source_encodings")),
    Part(
        "Filters pushed down to it",
        more=_of("test_data_source", "filters_are_pushed_down_where_that_is_asked_for"),
    ),
    Part(
        "A state made of rows",
        more=(
            *_of("test_data_source_writes"),
            *_of("test_data_source", "a_query_goes_on_from_rows_as_if_it_had_never_stopped"),
        ),
    ),
    Part("Settings of a query alone", _of("test_query_settings")),
    Part("Every kind of store", more=_of("test_every_store", "every_kind_of_store_holds_what_it_should")),
    Part("Punctuation", more=_of("test_punctuation", "stream_time_goes_on_across_batches_and_restarts")),
    Part(
        "pandas for each key",
        more=(
            *_of("test_per_key", "a_moved_processor_puts_out_what_it_did_and_headers_too"),
            *_of("test_per_key_in_tasks", "a_column_of_values_is_of_numbers_if_all_are"),
        ),
    ),
    Part("Output in batches of bounded size", more=_of("test_drivers")),
    Part("Figures, listener", more=(*_of("test_figures"), *_of("test_figures_listener"))),
    Part("Rescaling", more=_of("test_rescale", "a_dry_run_says_where_to_go_on_and_writes_nothing")),
    Part(
        "Workers of Python",
        more=_of(
            "test_python_workers",
            "the_driver_s_python_learns_the_state_variables_without_the_topology",
            "all_workers_of_a_query_are_forks_of_one_daemon",
        ),
    ),
    Part(
        "Interceptors",
        more=_of("test_middleware", "a_chain_around_a_query_with_dead_letters_state_and_figures"),
    ),
    Part(
        "What a failed query says",
        more=(*_of("test_query_failure"), *_of("test_bad_input", "a_bad_record_stops_the_query_and_loses_nothing")),
    ),
    Part(
        "Spark Connect",
        more=(
            *_of("test_connect_queries", "a_query_goes_on_where_it_was"),
            *_of(
                "test_connect_reading",
                "a_state_is_made_and_read_where_the_server_is",
                "what_is_committed_is_read_in_all_ways",
            ),
        ),
    ),
    Part("Functions of headers", more=_of("test_header_functions", "values_are_printed_by_their_type")),
    Part("Typed headers", more=_of("test_typed_values", "values_become_columns_of_any_type")),
)
CLIENT_ALONE: Final = Part(
    "Spark Connect, from `pyspark-client` alone", more=(*_of("test_connect_queries"), *_of("test_connect_reading"))
)
"""Run with the Spark of the lock, by a client in an environment of its own that has no JVM."""
