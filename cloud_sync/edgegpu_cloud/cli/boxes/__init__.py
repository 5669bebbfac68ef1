"""The commands over the fleet: how boxes come, stand and go."""
