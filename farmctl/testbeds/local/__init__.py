"""The local testbed: real Chromes, real agents and the real proxy; this package plays the control plane.

One supervisor process owns everything. Decisions are plain functions; sockets, clock and processes are edges.
"""
