"""The field engineer's command `edgegpu`."""
