"""State directories of Kafka Streams: read as they are, and written so that Kafka Streams reads them.

task_directory  TaskDirectory: a task's directory, opened, changed and left, and a store in it; what there is before
store_database  one of a store's databases, and what we note of it
segment_directories
                a database for each segment, as one ordered map
layout          names and places
directory_view  databases read without a change to them

Imports all other rooms of `bytestore` but `write_sets`; the test driver and the tools import it.
Start at `task_directory`.
"""
