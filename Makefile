# Everything a fresh Debian machine with Python and make needs is set up by these targets themselves: the environment in
# .venv, and Java. A second call finds it done.

SHELL := bash
PYTHON ?= python3
ARGS ?=
RUNS ?= 20
SEED ?= 1
OF ?= state

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Spark's workers must run in the same environment as its driver.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Spark looks up the machine's own name otherwise, which fails where that is not in DNS.
export SPARK_LOCAL_IP ?= 127.0.0.1

# In recipes only, so that targets without Java do not look for one.
WITH_JAVA := JAVA_HOME="$$(.ci/find-java)" && export JAVA_HOME &&
COMPILE_LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--custom-compile-command "make lock"
PEERS_LOCK := benchmarks/peers/environment.lock

.DEFAULT_GOAL := help
.PHONY: help demo demo-kafka demo-middleware demo-look test test-fast test-matrix try-upgrade durations soak kills simulate mutations check sbom bench bench-check bench-peers docs lock clean java jars prometheus chromium azurite versitygw fuse

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What Spark says of itself in demos: as docs/operating.md has it.
QUIET := SPARK_SUBMIT_OPTS="-Dlog4j2.configurationFile=file:$(CURDIR)/docs/examples/log4j2.properties"
# And what its workers print, which no setting removes.
NO_CHATTER := 2> >(grep -v -e 'Streaming TransformWithStateInPandas Python worker' -e '^$$' >&2)

demo: java $(INSTALLED) ## run the running total example, from files
	@$(WITH_JAVA) $(QUIET) $(BIN)/python docs/examples/running_total.py $(NO_CHATTER)

demo-kafka: java $(INSTALLED) jars ## run it from Kafka to Kafka, with a broker of its own
	@$(WITH_JAVA) $(QUIET) $(BIN)/python docs/examples/kafka_running_total.py $(NO_CHATTER)

demo-middleware: java $(INSTALLED) jars ## run a stack of middleware around a query, from Kafka to Kafka
	@$(WITH_JAVA) $(QUIET) $(BIN)/python docs/examples/middleware_stack.py $(NO_CHATTER)

demo-look: java $(INSTALLED) ## run a query that goes on, and look at its state in a browser
	@$(WITH_JAVA) $(QUIET) $(BIN)/python docs/examples/demo_look.py $(ARGS) $(NO_CHATTER)

# Spark's own processes live for seconds in tests: to optimise their code takes longer than to run it as it is.
SHORT_LIVED_JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

# A file's tests run in one process, so that what its fixtures start is started once. The files with the most tests are
# not those that take longest, so they do not come first. One process more than CI has cores: a third of their time they
# wait for Spark, for a broker or for a clock.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: java $(INSTALLED) jars ## run all tests, in 3 processes; ARGS="-k name" or ARGS="-m 'not kafka'" runs some
	@$(WITH_JAVA) SPARK_SUBMIT_OPTS="$(SHORT_LIVED_JVM)" $(PYTEST) --costs=build/durations.json $(ARGS)

test-fast: $(INSTALLED) ## run, at each save, what needs neither Spark nor Java nor Kafka and is not slow
	@$(PYTEST) --fast $(ARGS)

test-matrix: java $(INSTALLED) ## run a part of the tests with each Spark from 4.0 to 4.3, and write docs/compatibility.md; ARGS="--only 4.0"
	@$(WITH_JAVA) SPARK_SUBMIT_OPTS="$(SHORT_LIVED_JVM)" $(BIN)/python -m tests.matrix $(ARGS)

try-upgrade: java $(INSTALLED) ## have queries of the last release go on with this one, and back
	@$(WITH_JAVA) SPARK_SUBMIT_OPTS="$(SHORT_LIVED_JVM)" $(BIN)/python -m tests.matrix.last_release

durations: $(INSTALLED) ## show what each folder, file and test took in the last make test; ARGS="--count 100"
	@$(BIN)/python -m tests.support.durations $(ARGS)

soak: java $(INSTALLED) ## run a query under fault plans: RUNS=n of them, from SEED=s on; ARGS="--report file" as well
	@$(WITH_JAVA) PYTHONPATH=docs/examples:. $(BIN)/python -m statestore.testing.soak \
		--query tests.support.soak.query:queries --runs $(RUNS) --seed $(SEED) --again "make soak RUNS=1 SEED={seed}" $(ARGS)

CLUSTER_TESTS := tests/spark/test_kafka_sink.py tests/spark/test_local_cluster.py tests/spark/test_standalone.py \
	tests/spark/test_yarn.py

kills: java $(INSTALLED) jars ## kill drivers, executors and workers of clusters at each step of a batch and of the sink of transactions
	@$(WITH_JAVA) KILLS=all SPARK_SUBMIT_OPTS="$(SHORT_LIVED_JVM)" $(BIN)/python -m pytest $(CLUSTER_TESTS) $(ARGS)

simulate: $(INSTALLED) ## run the protocol under a seeded scheduler, without Spark: RUNS=n plans, from SEED=s on; OF=stages or sink, ARGS as well
	@$(BIN)/python -m tests.simulation --of $(OF) --runs $(RUNS) --seed $(SEED) $(ARGS)

mutations: $(INSTALLED) ## break the protocol, stages and the sink line by line: a plan of the simulation notices each
	@$(PYTEST) tests/simulation/broken_lines.py $(ARGS)

check: $(INSTALLED) ## format, lint, types, import directions, lock; no tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@.ci/check-lock $(COMPILE_LOCK) --extra dev pyproject.toml

sbom: $(INSTALLED) ## write into dist what the package brings and its licences, as CycloneDX and as text
	@$(BIN)/python -m tests.support.bill_of_materials dist

bench: java $(INSTALLED) jars ## run the benchmarks
	@$(BIN)/python benchmarks/stores.py
	@$(BIN)/python benchmarks/views.py
	@$(BIN)/python benchmarks/processor.py
	@$(BIN)/python benchmarks/middleware.py
	@$(BIN)/python benchmarks/test_driver.py
	@$(BIN)/python benchmarks/memory.py
	@$(BIN)/python benchmarks/large_values.py
	@$(BIN)/python benchmarks/long_run.py
	@$(BIN)/python benchmarks/scale.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/growth.py
	@$(BIN)/python benchmarks/migration.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/datasource.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/header_functions.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/tiny_batches.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/heads.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/kafka_sink.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/dsl.py
	@$(WITH_JAVA) $(BIN)/python benchmarks/run.py $(ARGS)

bench-check: $(INSTALLED) ## compare shard call, operators, stores and codecs with the recorded baseline; ARGS=--record writes it
	@$(BIN)/python benchmarks/check.py $(ARGS)

bench-peers: java $(INSTALLED) jars ## measure statestore beside Kafka Streams, Quix and Spark; ARGS="--help" says more
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.peers $(ARGS)

# The authors of both packages print advice about each other's future above what the build says.
docs: $(INSTALLED) ## build the documentation as a site, in site/, and look it over; nothing is fetched
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python -m pytest -q tests/docs/site.py

lock: $(INSTALLED) ## write the locks of the project and of bench-peers anew; ARGS=--upgrade takes newer versions
	$(COMPILE_LOCK) --extra dev $(ARGS) pyproject.toml --output-file requirements.lock
	$(COMPILE_LOCK) $(ARGS) $(PEERS_LOCK:.lock=.in) --output-file $(PEERS_LOCK)

clean: ## remove the environment and all caches of this directory
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
	rm -rf spark-warehouse metastore_db derby.log

# Before the environment, because it fails at once where Java is missing and can't be installed.
java:
	@.ci/find-java >/dev/null

prometheus: # which tests of metrics and alerts use where it is
	@command -v promtool >/dev/null || .ci/apt-install prometheus

chromium: # which tests of the page of `upgrade-tools serve` use where it is
	@command -v chromium >/dev/null || .ci/apt-install chromium

azurite: # which tests of state locations in Azure use where it is
	@.ci/install-azurite

fuse: # which tests of state locations on mounts use where it is
	@command -v fusermount3 >/dev/null || .ci/apt-install fuse3

versitygw: # which tests of state locations on S3 use where it is
	@.ci/install-versitygw

jars: java $(INSTALLED)
	@$(WITH_JAVA) $(BIN)/python -m statestore.testing.jars

$(INSTALLED): requirements.lock pyproject.toml .ci/install
	@.ci/install "$(PYTHON)" $(VENV)
	@touch $@
