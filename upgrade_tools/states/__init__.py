"""State wherever it lies, read in one way: task directories of Kafka Streams, local copies, state locations.

state           State, OpenStore: what all layouts have in common; what users say of a store
detection       open_state: which layout a path or URI has
task, copy, location
                the layouts
database        databases as they lie on the disk, and what their column families tell
program         which stores and topics a program has, by stage
store_argument  NAME:KIND:OPTION=MS, a store on the command line

All other rooms import it, and it imports none. Start at `state`.
"""
