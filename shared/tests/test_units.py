"""Kubernetes quantities as exact integers."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.formats import units

amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(-(10**18), 10**18)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("-3", "-3"),
        ("1.5", "1.5"),
        ("1.", "1"),
        (".5", "0.5"),
        ("100m", "0.1"),
        ("250u", "0.00025"),
        ("7n", "0.000000007"),
        ("2k", "2000"),
        ("3M", "3000000"),
        ("1G", "1e9"),
        ("1T", "1e12"),
        ("1P", "1e15"),
        ("1E", "1e18"),
        ("1e3", "1000"),
        ("12E-1", "1.2"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("1Ti", "1099511627776"),
        ("1Ei", "1152921504606846976"),
        (2, "2"),
        (0.5, "0.5"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str | int | float, value: str) -> None:
    assert units.quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "1KB", "0x10", "1e", "1..5", "nan", "1Gim"]
)
def test_an_invalid_quantity_is_an_error_with_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity.*: write a number") as caught:
        units.quantity(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("1g", "1Gi"), ("64GB", "64Gi"), ("1.5gib", "1.5Gi"), ("512 mb", "512Mi"), ("1K", "1Ki"),
        ("1x", ""), ("", ""), ("\u0661g", ""),
    ],
)  # fmt: skip
def test_a_unit_of_other_programs_gets_a_suggestion(text: str, guess: str) -> None:
    """Slurm, Docker and people write 1g and 64GB, and mean powers of 1024."""
    assert units.suggestion(text) == guess
    if guess:
        units.quantity(guess)
        with pytest.raises(ValueError, match=f"did you mean {guess}"):
            units.quantity(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e999999999", 2**63 - 1),
        ("-1e999999999", -(2**63 - 1)),
        ("9" * 99, 2**63 - 1),
        (1e308, 2**63 - 1),
        ("8Ei", 2**63 - 1),
        ("1e-999999999", Decimal("1e-9")),
        ("-1e-10", Decimal("-1e-9")),
        ("0e999999999", 0),
    ],
)
def test_quantities_are_rounded_like_in_kubernetes(text: str | float, value: Decimal | int) -> None:
    """And costs no more than any other quantity."""
    assert units.quantity(text) == value
    assert abs(units.amount("cpu", text)) in (units.MOST, 1, 0)


@pytest.mark.parametrize("text", ["1\n", "\uff11", "1" * 101, 10**400])
def test_a_quantity_is_short_and_in_plain_digits(text: str | int) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        units.quantity(text)


@given(
    st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,12}|[numkMGTPE]|[KMGTPE]i)?")
)
def test_every_quantity_has_an_amount_that_fits_64_bits(text: str) -> None:
    try:
        amount = units.amount("cpu", text)
    except ValueError:
        return
    assert abs(amount) <= units.MOST


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        ("cpu", "2", 2000),
        ("cpu", "100m", 100),
        ("cpu", "0.1m", 1),
        ("cpu", "1.0001", 1001),
        ("memory", "1Gi", 2**30),
        ("memory", "1500m", 2),
        ("pods", "110", 110),
        ("count/jobs.batch", "5", 5),
        ("nvidia.com/gpu", "8", 8000),
        ("ephemeral-storage", "1Ki", 1024000),
    ],
)
def test_an_amount_is_whole_in_its_resources_unit(name: str, text: str, amount: int) -> None:
    """Milli-cores, bytes, whole pods, else thousandths; rounded up, so nothing gets for free."""
    assert units.amount(name, text) == amount


def test_a_list_of_resources_becomes_amounts() -> None:
    assert units.amounts({"cpu": 1, "memory": "1Ki"}) == {"cpu": 1000, "memory": 1024}


def test_a_name_that_is_absent_means_zero() -> None:
    assert units.add({"cpu": 1}, {"memory": 2}) == {"cpu": 1, "memory": 2}
    assert units.highest({"cpu": 1}, {"cpu": 3, "memory": 2}) == {"cpu": 3, "memory": 2}
    assert units.times(3, {"cpu": 2}) == {"cpu": 6}


@given(st.lists(amounts, max_size=5))
def test_a_sum_is_exact_in_any_order(parts: list[units.Amounts]) -> None:
    """Which floating point is not: the reason for integers."""
    forward: units.Amounts = {}
    backward: units.Amounts = {}
    for part in parts:
        forward = units.add(forward, part)
    for part in reversed(parts):
        backward = units.add(backward, part)
    assert forward == backward


@given(amounts, amounts)
def test_arithmetic_does_not_change_its_arguments(
    left: units.Amounts, right: units.Amounts
) -> None:
    before = dict(left), dict(right)
    units.add(left, right)
    units.highest(left, right)
    units.times(2, left)
    assert (left, right) == before


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 64 * 2**20, "64Mi"),
        ("memory", 2**40, "1Ti"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("pods", 110, "110"),
        ("nvidia.com/gpu", 8000, "8"),
        ("nvidia.com/gpu", 500, "500m"),
    ],
)
def test_an_amount_is_shown_as_people_write_it(name: str, value: int, text: str) -> None:
    assert units.text(name, value) == text


@given(
    st.sampled_from(["cpu", "memory", "pods", "count/x", "nvidia.com/gpu"]),
    st.integers(0, 10**15),
)
def test_a_formatted_quantity_is_parsed_back(name: str, value: int) -> None:
    assert units.amount(name, units.text(name, value)) == value
