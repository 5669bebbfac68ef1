"""The command line `edgegpu` for field engineers."""
