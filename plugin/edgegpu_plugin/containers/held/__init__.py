"""What is known of a container that the limiter holds: its state, what goes past the limiter, and kubelet's records."""
