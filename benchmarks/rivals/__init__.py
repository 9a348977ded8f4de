"""The project's estimator and programs of others on the same published steps."""
