"""The performance model of arXiv 2410.00273: a roofline per operation, over every layout."""
