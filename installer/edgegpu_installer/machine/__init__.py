"""What is so on this machine, asked of it with deadlines: k3s, containerd, cards, units."""
