"""What a migration will do: request and plan; formats and conversions of each store; fingerprints of its source."""
