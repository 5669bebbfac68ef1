"""The plugin's side of kubelet: registration, device lists, allocation, what kubelet holds."""
