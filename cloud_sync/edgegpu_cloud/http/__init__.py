"""The HTTPS service for boxes and their installers."""
