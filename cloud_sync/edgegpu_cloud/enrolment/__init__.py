"""How boxes join a controller: authorities, tokens, certificates, the controllers' keys."""
