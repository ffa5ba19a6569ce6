"""What the matrix runs with each Spark: demos, and tests by what they are about."""

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

_HEADERS_IN_STATE: Final = "tests/spark/test_headers_in_state.py"
_DATA_SOURCE: Final = "tests/spark/test_data_source.py"
PARTS: Final = (
    Part("What Spark lacks, and what stands in for it", ("tests/spark/test_spark_versions.py",)),
    Part(
        "Headers in state, a restart, a lost disk, both entry points",
        (f"{_HEADERS_IN_STATE}::test_each_record_comes_out_once_and_headers_survive_state_and_a_lost_disk",),
        (_HEADERS_IN_STATE,),
    ),
    Part("Recovery", more=("tests/spark/test_recovery.py",)),
    Part("Exactly once", more=("tests/spark/test_exactly_once.py",)),
    Part(
        "State as rows: the data source, `read_store`",
        (f"{_DATA_SOURCE}::test_a_store_is_rows_with_a_task_for_each_shard",),
        (_DATA_SOURCE,),
    ),
    Part("A state made of rows", ("tests/spark/test_data_source_writes.py",)),
    Part("Settings of a query alone", ("tests/spark/test_query_settings.py",)),
    Part("Every kind of store", more=("tests/spark/test_every_store.py",)),
    Part("Timers, punctuation", more=("tests/spark/test_punctuation.py",)),
    Part("pandas for each key", more=("tests/spark/test_per_key.py", "tests/spark/test_per_key_in_tasks.py")),
    Part("Figures, listener", more=("tests/spark/test_figures.py", "tests/spark/test_figures_listener.py")),
    Part("Rescaling", more=("tests/spark/test_rescale.py",)),
    Part("Workers of Python", more=("tests/spark/test_python_workers.py",)),
    Part("Interceptors", more=("tests/spark/test_middleware.py",)),
    Part("What a failed query says", more=("tests/spark/test_query_failure.py", "tests/spark/test_bad_input.py")),
    Part("Functions of headers", more=("tests/spark/test_header_functions.py",)),
    Part("Typed headers", more=("tests/spark/test_header_conversion.py",)),
    Part("Kafka to Kafka", more=("tests/spark/test_kafka.py",)),
)
