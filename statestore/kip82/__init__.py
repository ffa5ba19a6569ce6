"""The alternatives that KIP-82 discusses and did not take, as views of headers and as ways to and from them.

early_headers     Headers as an earlier draft of the KIP had them
id_headers        keys as ids of a registry; id_header_bytes their layout
text_headers      a map of text, as `&=` text, JSON and Avro
typed_headers     objects that your functions make of headers
message           a message that wraps headers and payload
wrapped_values    headers out of values that carried them

In statestore, only `middleware` imports this. Start at `docs/headers.md`.
"""
