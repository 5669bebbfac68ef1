"""What the agent sees and measures of its box, for the cloud: read slowly, on a thread of its own."""
