"""The settling of apps' GPU limits: verdict, patch, rollout, restoring of old limits, drift."""
