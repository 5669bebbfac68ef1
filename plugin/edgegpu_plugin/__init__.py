"""The process edgegpu-plugin: device plugins for kubelet, NVML, CDI, pods, the scheduler extender."""
