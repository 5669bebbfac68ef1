//go:build kubernetes_1_37

package main

var kubeletFlags = map[string]string{}
