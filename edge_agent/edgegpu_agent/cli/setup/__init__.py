"""An installation from its options to its end: what is put on the machine, and how the box stands with its cloud."""
