"""Record headers (KIP-82), and the records that carry them.

record_headers   Header, Headers: an ordered multimap, lazy over its encoded bytes
records          ProducerRecord, ConsumerRecord: their headers are never None
                 Sender: serialises, closes the headers, refuses a record that was sent before
extended_serdes  serdes that read and write headers, under Kafka's interfaces
conversion       between records, message format v2, and formats v0 and v1, which have no headers
record_size      what each part of a record costs
record_columns   RecordColumns: records in columns of Arrow; topic_columns: records of topics, as tuples and as columns
expiry_header    the header that says when its record expires

Users import from here, message formats of `format` too; headers and records from `statestore`. Imports `format`; all
layers above import it. Start at `record_headers`.
"""

from statestore.format.records.header_columns import decode_header_column
from statestore.format.records.message_v0_v1 import MessageV0V1
from statestore.format.records.record_v2 import RecordV2, decode_record, encode_record
from statestore.headers.conversion import down_convert, from_record_v2, to_record_v2, up_convert
from statestore.headers.extended_serdes import ExtendedDeserializer, ExtendedSerializer, serde_of
from statestore.headers.record_size import size_of
from statestore.headers.records import Sender, TimestampType

__all__ = [
    "ExtendedDeserializer",
    "ExtendedSerializer",
    "MessageV0V1",
    "RecordV2",
    "Sender",
    "TimestampType",
    "decode_header_column",
    "decode_record",
    "down_convert",
    "encode_record",
    "from_record_v2",
    "serde_of",
    "size_of",
    "to_record_v2",
    "up_convert",
]
