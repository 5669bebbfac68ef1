"""Rollouts: one change for many boxes, in waves, with gates between them and a return where it fails."""
