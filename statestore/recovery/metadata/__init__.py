"""What is recorded of a state as a whole: its stores and shards, who owns it, and how starts agree on it.

state_metadata  `statestore.json`: what is fixed at the first start, as the group keys that Spark has for shards
agreement       one content for it, among all who start at once; one tool at a time where a state is made; one owner

Imports `location`; `fences` and `making` import it, and drivers when a query starts. Start at `state_metadata`.
"""
