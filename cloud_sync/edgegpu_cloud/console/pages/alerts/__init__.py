"""Pages of alerts, and of the webhooks that are told of them."""
