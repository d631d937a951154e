"""HTTP: connections, who is answered, the path of a request to an endpoint and back, logs and metrics. No models."""
