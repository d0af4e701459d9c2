"""The lease core: events in, commands out. It knows no socket, no clock and no log."""
