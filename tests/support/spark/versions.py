"""Marks of tests that do not run with every Spark that is supported: docs/compatibility.md says what each one lacks."""

from __future__ import annotations

import pytest

from statestore.spark.spark_versions import LACKS_SOME

not_in_spark_4_0 = pytest.mark.skipif(LACKS_SOME, reason="Spark 4.0 does not have it")
only_in_spark_4_0 = pytest.mark.skipif(not LACKS_SOME, reason="Spark has it from 4.1 on")
