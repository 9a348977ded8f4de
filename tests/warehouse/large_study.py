"""A study of large problems: most of its rows are in no table of leading rows."""

LARGE = """
name = "large"
estimator = "roofline"
[space]
model = "gpt3_1T"
strategy = "summa_2d"
accelerator = "B200"
nvlink_size = [4, 8]
num_gpus = [512, 2048]
global_batch_size = 4096
"""
