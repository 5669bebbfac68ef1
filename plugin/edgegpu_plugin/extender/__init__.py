"""The scheduler extender: filter, prioritize, preempt and bind for GPU pods on all nodes of the cluster."""
