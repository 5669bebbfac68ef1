"""The box's journal: what survives a crash, in one SQLite file of a fixed size; no other package imports sqlite3."""
