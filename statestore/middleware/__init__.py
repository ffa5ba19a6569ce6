"""Middleware over headers: interceptors that user code need not know of, and chains of them.

interceptor   Interceptor: hooks for records on their way in and out
chain         Chain: interceptors in an order
compression   values compressed one by one
expiry        records that say when they expire
compaction    a log compacted by a key in a header
header_ids, compact_headers  who owns which header ids, and all headers as one, under ids
slicing, claim_check  large values as several records, or elsewhere
keys, key_source, key_ids  keys by their ids, and where they come from
signing, signature_frame  records that can't be changed on their way
encryption, serde_cipher, ciphertext  values, headers and state that only who has the key reads
auth, cedar   tokens and policies: who a record is of, and whether they may
canonical, clock, marked_columns  fields as one run of bytes, what time it is, headers for some rows
extras, properties  libraries that an application needs, and what a configuration says of it
content_type  the header that says how a value is written
polyglot      polyglot_serde: values in several formats, as their content types say
cloud_events  records that are CloudEvents
avro          plain_avro_serde: values under a schema that both sides have
schema_registry  avro_serde, SchemaInterceptor: values whose schemas a registry keeps

Start at `interceptor`. `Task` in `statestore.processor` runs a chain around a topology,
`statestore.spark.with_middleware` on a DataFrame. Imports nothing above the stores; what needs a library that is an
extra is a module of its own here, which says which extra.
"""

from statestore.middleware.chain import Chain
from statestore.middleware.interceptor import (
    EmittedRecord,
    IngestedRecord,
    Interceptor,
    InterceptorContext,
)

__all__ = ["Chain", "EmittedRecord", "IngestedRecord", "Interceptor", "InterceptorContext"]
