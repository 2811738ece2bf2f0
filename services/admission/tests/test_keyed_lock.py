"""Requests with the same key wait for each other, others do not."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.keyed_lock import KeyedLock


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), max_size=12)
)
def test_a_key_is_held_by_one_request_at_a_time_in_order_of_arrival(
    visits: list[tuple[str, int, int]],
) -> None:
    """Independent of the number of event loop iterations until the request and during its work."""
    work: KeyedLock[str] = KeyedLock()
    came: list[tuple[str, int]] = []
    entered: list[tuple[str, int]] = []
    inside: set[str] = set()

    async def visit(number: int, key: str, before: int, stays: int) -> None:
        for _ in range(before):
            await asyncio.sleep(0)
        came.append((key, number))
        async with work.of(key):
            assert key not in inside
            inside.add(key)
            entered.append((key, number))
            for _ in range(stays):
                await asyncio.sleep(0)
            inside.discard(key)

    async def all_of_them() -> None:
        await asyncio.gather(*(visit(number, *each) for number, each in enumerate(visits)))

    asyncio.run(all_of_them())
    for key in "ab":
        assert [each for each in entered if each[0] == key] == [e for e in came if e[0] == key]
    assert len(work) == 0
