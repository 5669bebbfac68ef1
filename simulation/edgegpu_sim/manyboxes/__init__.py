"""Many simulated boxes in one process, each with a connection of its own: what a controller and its people see."""
