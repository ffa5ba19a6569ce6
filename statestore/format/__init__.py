"""Bytes <-> values: the layouts of Kafka Streams, scalar and over Arrow columns. No I/O, no state.

One module owns one layout and begins with its grammar. The layouts are described in docs/formats.
"""
