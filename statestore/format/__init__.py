"""Bytes <-> values: the layouts of Kafka Streams, scalar and over Arrow columns. No I/O, no state.

One module owns one layout and begins with its grammar. The layouts are described in `docs/formats`.

values          of a store: with times, headers and versions, and of what waits
keys            of a store, and where a record's key belongs
records         Kafka's message formats, and header bytes
serdes          serde, serde_columns
columns         binary_columns, key_groups; arrow_file: files of them that anybody may have written
Kafka Streams   position, offset_checkpoint
varint, json_fields, byte_text
                integers; fields of the JSON that is recorded; keys and values as people write and read them

Imports `errors` only; all layers above import it. Start at `values/store_format`.
"""
