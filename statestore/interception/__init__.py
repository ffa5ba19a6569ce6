"""Interception: what records pass between topics and a topology, and what is done about those that fail.

interceptor     what a user writes, a class or a plain function
chain           several as one, in an order that works, also by names in a configuration
passage         how records pass one side of a chain, by themselves and in columns
task_passages   a passage around the records that a task is given, and those that its sinks send
failures        what is done about a record that fails, dead letters, and what a task counts

Users import from `statestore.middleware`. Imports `stores` and below; `middleware` and `processor` import it. Start at
`interceptor`.
"""
