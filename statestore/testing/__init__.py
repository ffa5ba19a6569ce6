"""What tests and demos of stateful jobs need beside the job itself; public, and never used by the job.

topology_test_driver
                TopologyTestDriver; driver_run: its task; driver_state, progress: what it keeps
topics, topic_logs, store_access
                what a test puts in and reads: topics and stores
pytest_plugin   its pytest fixture
kafka_broker    a Kafka broker; jars: the jars that it needs
faults/         queries under faults; soak: many of them

Imports all layers below but `spark`; nothing imports it. `jars` and `soak` are started by `python -m`, so this
package imports neither. Start at `topology_test_driver`.
"""

from statestore.testing.topics import TestInputTopic, TestOutputTopic, TestRecord
from statestore.testing.topology_test_driver import TopologyTestDriver

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]
