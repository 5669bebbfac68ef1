"""The embedded kubelet with what concerns device plugins: device manager, admission, PodResources, running pods."""
