"""The console: a web process over the fleet, which knows the store and no MQTT."""
