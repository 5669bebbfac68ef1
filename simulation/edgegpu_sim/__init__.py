"""Stand-ins for what a laptop lacks: a simulated driver, an embedded kubelet and cluster."""
