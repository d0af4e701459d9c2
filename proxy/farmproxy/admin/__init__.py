"""The admin port: probes, metrics, status and a page for people. It only ever reads."""
