"""Measured kernels: surfaces of rates over the shapes of products and of attention."""
