"""The farm's contract as constants and structs: what callers, proxy, agent and farmctl say to each other.

Nothing here decides or does anything, and nothing here depends on anything but the standard library.
"""

__version__ = "0.1.0"
