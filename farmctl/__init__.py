"""farmctl: bring a browser farm up, break it on purpose, show with numbers what held."""

__version__ = "0.1.0"
