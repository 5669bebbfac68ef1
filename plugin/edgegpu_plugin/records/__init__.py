"""What the plugin knows of its node, keeps in step with kubelet and publishes."""
