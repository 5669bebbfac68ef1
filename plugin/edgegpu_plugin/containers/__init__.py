"""Injection of cards into containers: by CDI, the nvidia runtime, or device nodes in kubelet's answer."""
