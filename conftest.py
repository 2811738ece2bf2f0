"""How Hypothesis runs here: machines are slow at times, and slowness is no broken rule."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "stromboli", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("stromboli")
