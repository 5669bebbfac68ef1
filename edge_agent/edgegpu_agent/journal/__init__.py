"""The box's journal, which survives crashes: one SQLite file of a fixed size; no other package imports sqlite3."""
