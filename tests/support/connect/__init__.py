"""Vectors of what Kafka Connect's typed headers, converters and transforms did, and how they are run on ours.

forms       the JSON of values, schemas and headers, and back
typed_values  schemas and values that follow them, for hypothesis
running     reads files of vectors, runs each, and says what differs

Each kind of vectors has a module of its name: it is found by that, and has a function `run(vector)` that does what the
vector asks for and returns what came of it, in the form of the vector's `result`. Errors may pass: `running` names them
as Kafka does.
"""
