"""The agent's actions on its box, one per op, and its settlers, one per kind of item."""
