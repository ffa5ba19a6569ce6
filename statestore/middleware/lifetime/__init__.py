"""Until when a record counts: expiry and retention by headers."""
