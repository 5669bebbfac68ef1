"""What the command line draws for people."""
