"""Values: conversions between types, and between values and text.

values       Values: the interface of both modes
compat       COMPAT: as Kafka does it
strict       STRICT: without a loss, or not at all
exact        numbers and points in time that are converted without a loss
typed_text   text that is read by a schema
reading      what Kafka takes a text for
printing     the text of a value
date_text    dates and times as Java writes and reads them
number_text  numbers as Java writes and reads them

Imports the foundation of `statestore.connect` alone; converters and transforms import it. Start at `values`.
"""
