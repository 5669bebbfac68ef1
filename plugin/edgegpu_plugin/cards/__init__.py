"""The cards of this machine: NVML, their health, the saved inventory, device nodes."""
