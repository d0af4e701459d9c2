"""What the farm costs, measured: the lease proxy beside HAProxy doing the same work in the same run.

Every figure comes from interleaved rounds on pinned cores; only ratios inside one run are claims.
"""
