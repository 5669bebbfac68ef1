"""The field engineer's command line, and later the daemon."""
