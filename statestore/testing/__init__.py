"""What tests and demos of stateful jobs need beside the job itself; public, and never used by the job."""

from statestore.testing.topics import TestInputTopic, TestOutputTopic, TestRecord
from statestore.testing.topology_test_driver import TopologyTestDriver

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]
