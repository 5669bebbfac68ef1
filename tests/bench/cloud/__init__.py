"""A fleet for measurements: thousands of boxes on real TLS connections, one process for all of them."""
