"""Questions about stored rows: rank, cost, why, explain."""
