"""HTTP capture: requests and responses recorded at the transport of HTTP clients."""
