"""The check that a machine works after a change."""
