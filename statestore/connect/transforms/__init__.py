"""Transformations of records and their headers, in chains that a connector's configuration describes.

transformation      what a Transformation and a Predicate are
header_from         HeaderFrom: fields become headers
header_to           HeaderTo: headers become fields
insert_header       InsertHeader
drop_headers        DropHeaders
filter              Filter
predicates          HasHeaderKey, RecordIsTombstone, TopicNameMatches
field_moves         what HeaderFrom and HeaderTo share
requirements        what they need of keys and values
step, chain         Step, TransformChain
connector_config    which steps a connector's configuration asks for
properties_text     properties as text
columns             ColumnChain: a chain over columns of many records
typed_columns       keys and values of columns with schemas

Users import from `statestore.connect`. Imports the rest of it; nothing of it imports this. Start at `chain`.
"""
