"""The rollouts in the store."""
