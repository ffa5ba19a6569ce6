"""Header converters: typed headers to bytes and back, under Kafka Connect's names.

base        HeaderConverter: the interface, for one's own too
simple      SimpleHeaderConverter: values as text, the default
"""
