"""What boxes have now, and what a change makes of it that names a part alone: the rest stays as it is on each box."""
