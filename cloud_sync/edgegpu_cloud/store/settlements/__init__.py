"""When boxes have settled what was requested of them, and how: applied, refused, failed."""
