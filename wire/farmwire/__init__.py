"""The farm's contract: what callers, proxy, agent and farmctl say to each other, as constants, and what two of them must do
alike: read launch options, judge addresses, write log lines. It depends on nothing but the standard library.
"""

__version__ = "0.1.0"
