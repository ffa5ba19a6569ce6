"""`make bench-peers`: one operator in several engines, side by side on one topic of one broker.

- `catalogue`: the peers. One more is one more entry there, and the program that it starts
- `spark_peer`, `quix_peer`, `CountAndKeep.java`: those programs; each runs until it is ended
- `workload_topic`: the records, in a topic; `output_check`: what must have come out of them
- `process_figures`: processor time and memory of a peer's processes, from /proc
- `run`: one peer from start to end; `figures`: what several runs come to; `targets`, `page`, `plot`: how it is shown
- `environment`: what is installed for this benchmark alone
"""
