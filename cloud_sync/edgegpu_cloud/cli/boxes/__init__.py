"""The commands over the fleet: enrol, show and remove boxes."""
