"""Experiments on batch scheduling, with the real scheduler in virtual time: see
docs/experiments.md.

python -m experiments [NAME ...] [--seeds N] [--write]
"""
