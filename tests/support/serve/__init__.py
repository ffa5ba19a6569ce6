"""What tests of `upgrade-tools serve` share."""
