"""The shares of the cards' time: what the limiter charges containers is put right by the driver's own count."""
