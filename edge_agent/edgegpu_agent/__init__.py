"""The command line `edgegpu` for field engineers, and the daemon `edgegpu-agent`."""
