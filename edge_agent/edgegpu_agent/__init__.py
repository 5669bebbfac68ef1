"""The field engineer's command line, and the daemon that is always there."""
