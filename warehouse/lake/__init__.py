"""Sweeps on many machines: shards write Parquet files to a folder, which a database collects."""
