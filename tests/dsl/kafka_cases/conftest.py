"""Cases that fail show what came out beside what was expected."""

import pytest

pytest.register_assert_rewrite("tests.support.dsl.kafka_cases")
