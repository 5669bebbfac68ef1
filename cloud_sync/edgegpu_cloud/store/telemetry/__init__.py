"""What boxes have measured: what containers see of their cards, and the use of cards by quarters of an hour."""
