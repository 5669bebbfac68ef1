"""What boxes and their installers reach over HTTPS."""
