"""What the agent does on its box: one action per op, one settler per kind of item."""
