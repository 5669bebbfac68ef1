"""How a card comes into a container: CDI, the nvidia runtime, or kubelet's own answer."""
