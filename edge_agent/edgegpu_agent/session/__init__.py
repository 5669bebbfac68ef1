"""One enrolled box with its cloud: identity, link, worker and local answers, for as long as the identity lasts."""
