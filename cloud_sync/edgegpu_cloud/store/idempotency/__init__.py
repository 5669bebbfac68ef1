"""The idempotency keys in the store."""
