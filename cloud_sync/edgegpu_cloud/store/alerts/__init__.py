"""Alerts, and the messages about them that wait for a webhook."""
