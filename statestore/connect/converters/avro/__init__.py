"""Typed headers in Avro.

avro_converter AvroConverter: with its schema, or without
avro_schema    schemas as Avro has them; avro_bounds: what is too much in one
avro_values    typed values in Avro's binary encoding; avro_nesting: how deep those of recursive schemas are
avro_datum     values as fastavro has them, under schemas as they are
"""
