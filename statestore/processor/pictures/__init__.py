"""What a topology looks like: as Kafka describes it, as text and as a drawing."""
