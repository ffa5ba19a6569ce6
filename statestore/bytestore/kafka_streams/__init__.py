"""State directories of Kafka Streams: read as they are, and written so that Kafka Streams reads them."""
