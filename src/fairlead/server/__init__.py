"""Access to a live scheduler: REST API, event stream, metrics, authorization."""
