"""What boxes did and used: settlements, evidence, use of cards."""
