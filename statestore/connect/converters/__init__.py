"""Header converters: typed headers to bytes and back, under Kafka Connect's names.

base           HeaderConverter: the interface, for one's own too
simple         SimpleHeaderConverter: values as text, the default; ByteArrayConverter: bytes as they are
string         StringConverter: text
json           JsonConverter: values with their schemas, or without
avro           AvroConverter: Avro, with its schema or without
registry       header_converter: the one that properties ask for
conversion     between a record's headers and typed ones
charsets       encodings under Java's names
json_text      JSON read into plain values, and written from them
json_encoding  which characters the bytes of a JSON text are
json_schema    schemas as JSON
json_reading   values of JSON to typed values
json_writing   typed values to values of JSON

Imports `values` and the foundation of `statestore.connect`; transforms and `middleware` import it. Start at `base`.
"""
