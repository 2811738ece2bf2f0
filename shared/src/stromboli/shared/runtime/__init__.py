"""What every service process shares: health, retries, signals, settings, telemetry, HTTP."""
