"""How boxes become members: authorities, tokens, certificates, the controllers' keys."""
