"""Testbeds: the one interface that scenarios are written against, and its kinds."""
