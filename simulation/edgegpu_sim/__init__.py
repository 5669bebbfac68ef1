"""Simulation of what a laptop lacks: an NVIDIA driver, a kubelet and a cluster."""
