"""The box's session with its cloud: identity, link, worker and local API, for as long as the identity lasts."""
