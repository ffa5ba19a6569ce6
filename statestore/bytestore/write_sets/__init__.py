"""What a micro-batch has written so far: read through, and applied at the commit."""
