"""What makes state durable: the location, deltas, the commit pointer, and the local copies rebuilt from them."""
