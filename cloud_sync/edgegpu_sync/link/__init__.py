"""The link between a box and its controller: MQTT by paho, connected again whatever happens."""
