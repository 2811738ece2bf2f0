"""The contracts of the ports, as classes of tests that the tests of each adapter subclass."""

import pytest

pytest.register_assert_rewrite(
    "stromboli.testkit.contracts.admission",
    "stromboli.testkit.contracts.bus",
    "stromboli.testkit.contracts.bus_recreated",
    "stromboli.testkit.contracts.cluster",
)
