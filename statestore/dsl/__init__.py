"""Kafka Streams' DSL in Python, with headers: a StreamsBuilder whose `build` gives a Topology.

streams_builder   where a program begins; kstream, grouped_stream, windowed_stream, ktable: what its steps return
aggregable_stream what streams have in common that can be aggregated
windows           which windows a record belongs to; header_policy: what becomes of headers where records meet
materialized      where a table is kept
stream_graph      the nodes of a program until they become a topology, and the names that Kafka gives them
processors        what runs: a module for each operator

Imports `processor` and below; `spark` and `testing` import it. Nothing here runs by itself: what `build` returns is a
topology of processors and stores like any other. Start at `streams_builder`.
"""
