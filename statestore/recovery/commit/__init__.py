"""What a commit of a shard consists of. Durable formats: each module owns one, see `docs/formats`."""
