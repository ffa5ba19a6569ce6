"""Bytes <-> values: the layouts of Kafka Streams, scalar and over Arrow columns. No I/O, no state.

One module owns one layout and begins with its grammar. The layouts are described in `docs/formats`.

values          store_format: which there are; value_timestamp, value_headers, value_timestamp_headers, versioned_row:
                each of them; stored_value, stored_columns: all of them side by side; buffered_record, waiting_values:
                what waits in buffers and joins; passed_times: what deduplication keeps
keys            window_key, session_key, time_key_columns; due_key, due_key_columns, entry_key: those of keyed state
headers         header_bytes, header_columns, header_lists, header_edits
records         record_v2, message_v0_v1, varint
serdes          serde, serde_columns
columns         binary_columns, key_groups; arrow_file: files of them that anybody may have written
Kafka Streams   position, offset_checkpoint, partitioner
json_fields     fields of the JSON that is recorded
byte_text       keys and values as people write and read them

Imports `errors` only; all layers above import it. Start at `store_format`, then `value_timestamp_headers`.
"""
