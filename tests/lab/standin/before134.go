//go:build !kubernetes_1_34

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apioptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Kubernetes 1.33: kubelet's command takes no context, and the API server has global flags of its own.

func kubeletCommand(context.Context) *cobra.Command { return kubelet.NewKubeletCommand() }

func addGlobalFlags(fs *pflag.FlagSet) { apioptions.AddCustomGlobalFlags(fs) }
