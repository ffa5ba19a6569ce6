"""The layouts of records and their headers.

header_bytes, header_columns, header_lists
                KIP-1271's header bytes: one by one, in columns, and changed in columns
record_v2, message_v0_v1
                Kafka's message formats
"""
