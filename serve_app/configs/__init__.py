"""Shipped service configurations, loaded by name."""
