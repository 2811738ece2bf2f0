"""Logins are bounded in total and per address, and so is the memory for it."""

import contextlib

import pytest

from stromboli.console import login_limits
from stromboli.console.login_limits import LoginLimits, TooManyLoginsError
from stromboli.console.oidc import pending


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(limits: LoginLimits, address: str, times: int) -> None:
    for _ in range(times):
        with limits.login(address):
            limits.failed(address)


def test_an_address_that_failed_often_has_to_wait_and_others_have_not() -> None:
    clock = Clock()
    limits = LoginLimits(clock)
    fail(limits, "192.0.2.1", login_limits.FAILURES)
    with pytest.raises(TooManyLoginsError) as caught, limits.login("192.0.2.1"):
        pass
    assert caught.value.wait_s == login_limits.REFILL_S
    with limits.login("192.0.2.2"):
        pass
    clock.now += login_limits.REFILL_S
    fail(limits, "192.0.2.1", 1)
    with pytest.raises(TooManyLoginsError), limits.login("192.0.2.1"):
        pass


def test_a_login_that_succeeds_costs_nothing() -> None:
    limits = LoginLimits(Clock())
    for _ in range(10 * login_limits.FAILURES):
        with limits.login("192.0.2.1"):
            pass
    assert len(limits) == 0


@pytest.mark.parametrize(
    ("address", "most"),
    [
        ("192.0.2.1", login_limits.MOST_OF_ADDRESS),
        (login_limits.UNKNOWN, login_limits.MOST_AT_A_TIME),
    ],
)
def test_logins_under_way_are_bounded_per_address_and_in_total(address: str, most: int) -> None:
    limits = LoginLimits(Clock())
    with contextlib.ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(limits.login(address))
        with pytest.raises(TooManyLoginsError), limits.login(address):
            pass
    with limits.login(address):
        pass


def test_memory_is_bounded_over_all_addresses() -> None:
    limits = LoginLimits(Clock())
    for number in range(login_limits.MOST_ADDRESSES + 10):
        limits.failed(f"10.0.{number // 256}.{number % 256}")
    assert len(limits) == login_limits.MOST_ADDRESSES


@pytest.mark.parametrize(
    ("peer", "header", "is_behind_proxy", "expected"),
    [
        ("192.0.2.1", "203.0.113.9", False, "192.0.2.1"),
        ("10.0.0.1", "203.0.113.9", True, "203.0.113.9"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.9", True, "203.0.113.9"),
        ("10.0.0.1", "", True, login_limits.UNKNOWN),
        ("10.0.0.1", "203.0.113.9, unknown", True, login_limits.UNKNOWN),
        ("2001:db8::1", "", False, "2001:db8::/64"),
        ("2001:db8::2:3:4:5", "", False, "2001:db8::/64"),
        ("::ffff:192.0.2.1", "", False, "192.0.2.1"),
    ],
)
def test_an_address_is_that_of_the_client_and_none_that_it_made_up(
    peer: str, header: str, is_behind_proxy: bool, expected: str
) -> None:
    headers = {"x-forwarded-for": header} if header else {}
    found = login_limits.address_of(peer, headers, is_behind_proxy=is_behind_proxy)
    assert found == expected


def test_a_pending_login_belongs_to_its_browser_for_ten_minutes() -> None:
    made = pending.start("/jobs?q=a", "vision", now=100.0)
    pending_login = pending.decode(pending.encode(made))
    assert pending_login == made
    assert pending_login.matches(made.state, 100.0 + pending.VALID_S)
    assert not pending_login.matches(made.state, 101.0 + pending.VALID_S)
    assert not pending_login.matches(made.state, 99.0)
    assert not pending_login.matches("guessed", 100.0)
    assert not pending_login.matches("", 100.0)


@pytest.mark.parametrize("value", ["", "!", "bnVsbA==", "W10=", "\u00e4", "WyJhIl0="])
def test_a_cookie_that_is_no_pending_login_is_none(value: str) -> None:
    assert pending.decode(value) is None


def test_a_pending_login_fits_into_a_cookie() -> None:
    pending_login = pending.start("/" + "\u00e4" * 4000, "vision", now=0.0)
    found = pending.encode(pending_login)
    assert len(found) <= pending.MOST_CHARACTERS
    assert (pending.decode(found) or pending_login).to == "/"
