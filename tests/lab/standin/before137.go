//go:build !kubernetes_1_37

package main

// kubeletFlags are those that kubelet has up to Kubernetes 1.36 alone, as k3s gives them.
var kubeletFlags = map[string]string{"containerd": containerdSocket}
