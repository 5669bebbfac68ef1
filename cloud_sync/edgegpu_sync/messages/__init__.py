"""What boxes and a controller say to one another: each body, what is in it, and its reader."""
