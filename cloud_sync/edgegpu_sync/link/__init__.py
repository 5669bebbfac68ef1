"""The link between a box and its controller: MQTT by paho, which reconnects whatever happens."""
