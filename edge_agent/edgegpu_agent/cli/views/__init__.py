"""The output of the command line for people."""
