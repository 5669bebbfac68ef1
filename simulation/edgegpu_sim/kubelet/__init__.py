"""A kubelet as far as device plugins see one: the device manager, admission, PodResources, and pods that run."""
