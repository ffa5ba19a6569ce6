"""What tests share, by subject. Helpers of one file are in that file.

golden      states and directories that were written once, and what is in them
recovery    shards without Spark; locations that behave as HDFS, S3 or a disk without power do
spark       queries, their input, and the worker that has the library loaded
clusters    Spark as a cluster of processes, and jobs that run there
kafka       records and Kafka Streams applications, with a real broker
java        programs that run with the real jars
twins       one topology in Kafka's TopologyTestDriver and in ours
soak        the query that `make soak` runs, and what must come of it
tools       runs of the command line, and migrations
"""
