"""Rollouts: begun, listed, followed."""
