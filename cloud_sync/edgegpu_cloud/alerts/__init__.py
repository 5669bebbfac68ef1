"""Alerts: what is wrong in the fleet, since when, and the webhook that is told."""
