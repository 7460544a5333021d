"""Requests of users about one job or many: each is one transaction, all or none."""
