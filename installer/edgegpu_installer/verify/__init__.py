"""Whether a machine works after a change of it."""
