"""Records in topics, and Kafka Streams applications that read and write them."""
