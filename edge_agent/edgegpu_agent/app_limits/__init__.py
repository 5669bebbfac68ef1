"""Settling of GPU limits of apps: the verdict, the patch, the rollout, the restoring of old limits, drift."""
