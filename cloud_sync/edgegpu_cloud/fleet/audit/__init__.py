"""The audit: who changed what, before and after, and what came of it."""
