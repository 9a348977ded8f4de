"""A database made again from its facts, and facts moved between databases."""
