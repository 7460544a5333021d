"""The REST application: routes, schemas, views, renewals and metrics."""
