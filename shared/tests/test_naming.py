"""Names in an error: the intended one is recognised, and thousands of errors are listed quickly."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.jobspec.validation import naming, pod_template
from stromboli.testkit import cpu_time


@given(st.integers(1, 30), st.data())
def test_the_first_names_are_listed_and_all_others_counted(count: int, data: st.DataObject) -> None:
    """All but the one that is not meant."""
    names = [f"n{number:02}" for number in range(count)]
    without = data.draw(st.sampled_from(["", *names]))
    text, _, more = naming.join_limited(names, without).partition(" and ")
    shown = text.split(", ") if text else []
    others = [name for name in names if name != without]
    assert shown == others[: len(shown)]
    assert len(shown) + int(more.removesuffix(" more") or 0) == len(others)


def test_the_cost_of_mounts_without_a_volume_is_linear() -> None:
    """Eight times as many in about eight times the CPU time, not in sixty-four."""

    def lasted_s(count: int) -> float:
        mounts = [{"name": f"no-{it}", "mountPath": f"/{it}"} for it in range(count)]
        spec = {
            "containers": [{"name": "c", "image": "i", "volumeMounts": mounts}],
            "volumes": [{"name": f"v-{it}", "emptyDir": {}} for it in range(count)],
        }
        template = msgspec.Raw(msgspec.json.encode(spec))
        violations, cpu_s = cpu_time.measured(
            lambda: list(pod_template.violations(template, "spec"))
        )
        assert len(violations) == count
        return cpu_s

    ratios = (lasted_s(2_400) / lasted_s(300) for _ in range(5))
    assert min(ratios) < 30
