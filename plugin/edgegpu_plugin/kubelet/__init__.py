"""The plugin's interfaces with kubelet: registration, device lists, allocation, kubelet's records."""
