"""Typed headers in Avro.

avro_converter AvroConverter: with its schema, or without
avro_schema    schemas as Avro has them
avro_bounds    how deep and how large schemas may be, and the values of recursive ones
avro_values    typed values in Avro's binary encoding
avro_datum     values as fastavro has them, under schemas as they are
"""
