"""The state of this machine: k3s, containerd, cards, units; every question has a deadline."""
