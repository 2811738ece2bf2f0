"""Shared by every service process: health, retries, signals, settings, telemetry, HTTP."""
