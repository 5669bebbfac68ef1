"""The plugin's records of its node: kept in step with kubelet, and published."""
