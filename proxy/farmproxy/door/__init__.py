"""The port that callers reach: heads, routes, answers, and a caller's connection until its session begins."""
