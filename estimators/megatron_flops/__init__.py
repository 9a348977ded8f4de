"""Parameters, FLOPs and time of a GPT by equations 2 to 4 of arXiv 2104.04473."""
