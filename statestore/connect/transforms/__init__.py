"""Transformations of records and their headers, in chains that a connector's configuration describes.

transformation      what a Transformation, a Predicate and a Step of both are
field_moves         HeaderFrom: fields become headers; HeaderTo: headers become fields
sides               what a transformation of keys or of values is
field_steps         ReplaceField, InsertField, ValueToKey, ExtractField, HoistField
value_steps         MaskField, Cast, Flatten, SetSchemaMetadata
timestamp_converter  TimestampConverter
header_steps        InsertHeader, DropHeaders, Filter; HasHeaderKey, RecordIsTombstone
topic_steps         RegexRouter, TimestampRouter; TopicNameMatches
chain               TransformChain; ColumnChain: the same over columns of many records
connector_config    which steps a connector's configuration asks for
typed_columns       keys and values of columns with schemas

Users import from `statestore.connect`. Imports the rest of it; nothing of it imports this. Start at `chain`.
"""
