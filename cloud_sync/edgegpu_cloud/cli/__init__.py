"""The command line edgegpu-cloud."""
