"""Record headers (KIP-82), and the records that carry them.

record_headers   Header, Headers: an ordered multimap, lazy over its encoded bytes
records          ProducerRecord, ConsumerRecord: their headers are never None
sending          Sender: serialises, closes the headers, refuses a record that was sent before
extended_serdes  serdes that read and write headers, under Kafka's interfaces
conversion       between records, message format v2, and formats v0 and v1, which have no headers
record_size      what each part of a record costs
"""

from statestore.headers.record_headers import Header, Headers
from statestore.headers.records import ConsumerRecord, ProducerRecord, TimestampType

__all__ = ["ConsumerRecord", "Header", "Headers", "ProducerRecord", "TimestampType"]
