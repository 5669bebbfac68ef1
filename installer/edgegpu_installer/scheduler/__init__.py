"""The scheduler's configuration file: read strictly, merged, checked."""
