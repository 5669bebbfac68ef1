"""The worker: the one thread that owns the journal, built from parts that share its core."""
