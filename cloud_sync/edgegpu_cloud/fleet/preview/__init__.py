"""Whether a change fits, before it is made: limits and sharing."""
