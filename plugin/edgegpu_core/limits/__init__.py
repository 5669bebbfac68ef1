"""Verdicts whether an app has room under new limits, before they are applied: on boxes and in the cloud's previews."""
