"""The agent's inventory and measurements of its box, for the cloud; read slowly, on a thread of its own."""
