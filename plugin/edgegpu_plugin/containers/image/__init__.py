"""What an image brings along that decides whether the limiter is what its programs load."""
