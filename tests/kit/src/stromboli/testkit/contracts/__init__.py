"""What every adapter of a port must do, as classes of tests that the adapters' tests subclass."""

import pytest

pytest.register_assert_rewrite(
    "stromboli.testkit.contracts.admission",
    "stromboli.testkit.contracts.bus",
    "stromboli.testkit.contracts.bus_recreated",
    "stromboli.testkit.contracts.cluster",
)
