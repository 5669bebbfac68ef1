"""The worker: the one thread that owns the journal, in parts that share its core."""
