"""The revisions of the tables, one file each. Alembic loads them by their paths; no module imports them."""
