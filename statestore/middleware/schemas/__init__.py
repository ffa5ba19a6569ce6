"""What a record means: schema registries, formats by content type, CloudEvents."""
