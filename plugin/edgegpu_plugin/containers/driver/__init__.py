"""How containers fit the driver that this machine has: the functions that it lacks, and libraries that are missing."""
