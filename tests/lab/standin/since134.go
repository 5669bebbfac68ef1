//go:build kubernetes_1_34

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func kubeletCommand(ctx context.Context) *cobra.Command { return kubelet.NewKubeletCommand(ctx) }

func addGlobalFlags(*pflag.FlagSet) {}
