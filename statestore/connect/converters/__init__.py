"""Header converters: typed headers to bytes and back, under Kafka Connect's names.

base           HeaderConverter: the interface, for one's own too
simple         SimpleHeaderConverter: values as text, the default; StringConverter; ByteArrayConverter
json           JsonConverter: values with their schemas, or without
avro           AvroConverter: Avro, with its schema or without
registry       header_converter: the one that properties ask for
charsets       encodings under Java's names
json_text      JSON read into plain values, and written from them
json_schema    schemas as JSON
json_values    values of JSON to typed values, and back

Imports `values` and the foundation of `statestore.connect`; transforms and `middleware` import it. Start at `base`.
"""
