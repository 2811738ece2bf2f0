"""Formats that users and kernels write: quantities, durations, index sets, CPU lists, cron,
YAML.
"""
