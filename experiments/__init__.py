"""Experiments of the field, with the real scheduler in virtual time: see docs/experiments.md.

python -m experiments [NAME ...] [--seeds N] [--write]
"""
