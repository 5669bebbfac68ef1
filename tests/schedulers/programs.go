//go:build programs

// Package programs names what `go mod tidy` keeps the modules of; nothing builds it.
package programs

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
