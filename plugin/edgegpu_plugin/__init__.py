"""The device-plugin process of edgegpu: kubelet, NVML, CDI, pods, the scheduler extender."""
