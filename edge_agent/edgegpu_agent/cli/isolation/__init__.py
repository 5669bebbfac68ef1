"""What holds containers to their shares: live limits, and the self-test of the limiter."""
