"""What is known of a container that the limiter holds: its state, and kubelet's records of it."""
