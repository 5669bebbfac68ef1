"""What the agent does on its box: one act per op, one settler per kind of item."""
