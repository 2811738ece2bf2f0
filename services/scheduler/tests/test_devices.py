"""Dynamic resource allocation: pods go where the devices they claim can be had."""

import pytest

from services.scheduler.tests import claimed, sessions, usual
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

NODES = [builders.make_node("n1"), builders.make_node("n2")]


def closed(*objects: meta.Object, run: str = "allocate") -> session.Session:
    return usual.closed(*NODES, claimed.device_class(), *objects, run=run)


def why(decided: session.Session, group: str = "g") -> str:
    return decided.jobs[f"default/{group}"].explain()


def given(decided: session.Session, pod: str = "default/g-0") -> list[str]:
    """``request device`` of what the pod's claims are to get before it is bound."""
    return [
        f"{each.request} {each.device}"
        for step in decided.decisions.preparations.get(pod, ())
        if isinstance(step, messages.ClaimedDevices) and step.allocation is not None
        for each in step.allocation.devices.results
    ]


def one(claim: str = "c") -> list[meta.Object]:
    return claimed.group("g", [claimed.pod("g-0", "g", claim)])


def test_a_pod_goes_where_its_devices_are() -> None:
    """The claim is given them before the pod is bound."""
    decided = closed(claimed.devices("n2", 2), claimed.claim("c", 2), *one())
    assert usual.binds(decided) == {"g-0": "n2"}
    assert given(decided) == ["r n2-gpu-0", "r n2-gpu-1"]
    (step,) = decided.decisions.preparations["default/g-0"]
    assert isinstance(step, messages.ClaimedDevices)
    assert step.allocation is not None
    assert step.allocation.node_selector == claimed.named("n2")


def test_devices_are_counted() -> None:
    """Of three pods with a device each two find one; a gang of three finds none."""
    claims = [claimed.claim(f"c{at}") for at in range(3)]
    pods = [claimed.pod(f"g-{at}", "g", f"c{at}") for at in range(3)]
    stock = claimed.devices("n1", 2)
    alone = closed(stock, *claims, *claimed.group("g", pods, min_member=1))
    assert usual.binds(alone) == {"g-0": "n1", "g-1": "n1"}
    gang = closed(stock, *claims, *claimed.group("g", pods))
    assert usual.binds(gang) == {}
    assert "2 cannot allocate all claims" in why(gang)


def test_a_gang_that_goes_back_leaves_its_devices() -> None:
    """What a discarded trial was given, the next job may have."""
    claims = [claimed.claim(name) for name in ("a0", "a1", "b0")]
    big = [claimed.pod(f"a-{at}", "a", f"a{at}") for at in range(2)]
    small = [claimed.pod("b-0", "b", "b0")]
    decided = closed(
        claimed.devices("n1", 1), *claims, *claimed.group("a", big), *claimed.group("b", small)
    )
    assert usual.binds(decided) == {"b-0": "n1"}


def test_devices_that_others_have_are_not_free() -> None:
    """A claim keeps what it has, whether its pod is seen or not."""
    taken = claimed.claim("old", allocated=["n1-gpu-0"], node="n1")
    assert usual.binds(closed(claimed.devices("n1", 1), taken, claimed.claim("c"), *one())) == {}


def test_a_claim_that_has_its_devices_ties_its_pods_to_them() -> None:
    """Even if other nodes have free ones."""
    stock = [claimed.devices("n1", 1), claimed.devices("n2", 1)]
    held = claimed.claim("c", allocated=["n2-gpu-0"], node="n2")
    decided = closed(*stock, held, *one())
    assert usual.binds(decided) == {"g-0": "n2"}
    reserved = messages.ClaimedDevices(claim="c", uid="")
    assert decided.decisions.preparations == {"default/g-0": [reserved]}


def test_pods_that_share_a_claim_share_its_node_and_its_devices() -> None:
    """The second follows the first, and takes nothing more."""
    stock = [claimed.devices("n1", 1), claimed.devices("n2", 1)]
    pods = [claimed.pod(f"g-{at}", "g", "c") for at in range(3)]
    decided = closed(*stock, claimed.claim("c"), *claimed.group("g", pods))
    assert set(usual.binds(decided).values()) == {"n1"}


def test_a_claim_from_a_template_is_found_by_the_pods_status() -> None:
    """One that is not made yet keeps its pod waiting."""
    stock = claimed.devices("n1", 1)
    made = [claimed.claim("made"), *claimed.group("g", [claimed.from_template("g-0", "g", "made")])]
    assert usual.binds(closed(stock, *made)) == {"g-0": "n1"}
    waits = claimed.group("g", [claimed.from_template("g-0", "g", None)])
    decided = closed(stock, claimed.claim("other"), *waits)
    assert usual.binds(decided) == {}
    assert "resource claim c of the pod is not made yet" in why(decided)


def test_a_template_that_needs_no_claim_needs_no_device() -> None:
    """Its status names the entry without a claim."""
    group = claimed.group("g", [claimed.from_template("g-0", "g", "")])
    assert usual.binds(closed(claimed.claim("other"), *group)) == {"g-0": "n1"}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([claimed.claim("other")], 'could not find resourceclaim "c"'),
        (
            [claimed.claim("c", deviceClassName="tpu")],
            "request r: device class tpu does not exist",
        ),
        (
            [claimed.claim("c", constraints=[{"distinctAttribute": "a/b"}])],
            "resourceclaim default/c: constraints other than matchAttribute are not supported",
        ),
        ([claimed.claim("c", -1)], "resourceclaim default/c: request r: a count of -1"),
        (
            [claimed.claim("c", requests=[{"name": "r"}])],
            "resourceclaim default/c: request r asks for no device",
        ),
    ],
)
def test_a_claim_that_cannot_be_served_says_why(objects: list[meta.Object], message: str) -> None:
    """And stops nobody else."""
    other = claimed.group("h", [builders.make_pod("h-0", "h")])
    decided = closed(claimed.devices("n1", 1), *objects, *one(), *other)
    assert usual.binds(decided) == {"h-0": "n1"}
    assert message in why(decided)


def test_selectors_of_class_and_request_both_hold() -> None:
    """Attributes without a domain are the driver's; quantities compare as such."""
    facts = [
        {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "80Gi"}}},
        {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "40Gi"}}},
        {"attributes": {"model": {"string": "b"}}, "capacity": {"memory": {"value": "80Gi"}}},
    ]
    domain = f'device.attributes["{claimed.DRIVER}"]'
    memory = f'device.capacity["{claimed.DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    own = claimed.device_class(
        "gpu", f'device.driver == "{claimed.DRIVER}"', f'{domain}.model == "a"'
    )
    asked = claimed.claim("c", selectors=[{"cel": {"expression": memory}}])
    decided = usual.closed(*NODES, own, claimed.devices("n1", 3, attributes=facts), asked, *one())
    assert given(decided) == ["r n1-gpu-0"]


@pytest.mark.parametrize(
    "expression", ['device.attributes["other"].healthy', "device.driver ==", "1 + 1"]
)
def test_a_selector_that_cannot_be_told_allows_nothing(expression: str) -> None:
    """Unknown is not yes: the node is refused with the expression and its error."""
    objects = [claimed.devices("n1", 1), claimed.claim("c"), *one()]
    decided = usual.closed(*NODES, claimed.device_class("gpu", expression), *objects)
    assert usual.binds(decided) == {}
    assert f"selector {expression!r}" in why(decided)


def test_a_selector_may_ask_whether_there_is_an_attribute() -> None:
    """Of a domain that the device knows nothing of, too."""
    asks = claimed.device_class("gpu", '!has(device.attributes["other"].healthy)')
    decided = usual.closed(*NODES, asks, claimed.devices("n1", 1), claimed.claim("c"), *one())
    assert usual.binds(decided) == {"g-0": "n1"}


def test_requests_get_different_devices_if_there_is_any_way() -> None:
    """The choosy request is not robbed by the modest one that came first."""
    facts = [{"attributes": {"big": {"bool": True}}}, {"attributes": {"big": {"bool": False}}}]
    big = f'device.attributes["{claimed.DRIVER}"].big'
    requests = [
        {"name": "any", "exactly": {"deviceClassName": "gpu"}},
        {
            "name": "big",
            "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": big}}]},
        },
    ]
    stock = claimed.devices("n1", 2, attributes=facts)
    decided = closed(stock, claimed.claim("c", requests=requests), *one())
    assert given(decided) == ["any n1-gpu-1", "big n1-gpu-0"]


def test_parts_of_devices_are_not_given_away() -> None:
    """They may overlap, and nobody here counts what is left of the whole."""
    part = {"consumesCounters": [{"counterSet": "card"}]}
    stock = claimed.devices("n1", 2, attributes=[part])
    assert given(closed(stock, claimed.claim("c"), *one())) == ["r n1-gpu-1"]
    assert usual.binds(closed(stock, claimed.claim("c", 2), *one())) == {}


def test_all_means_every_device_of_a_node_and_none_taken() -> None:
    """A node of which somebody has a device cannot give all."""
    stock = [claimed.devices("n1", 2), claimed.devices("n2", 3)]
    everything = claimed.claim("c", allocationMode="All")
    taken = claimed.claim("old", allocated=["n1-gpu-0"], node="n1")
    decided = closed(*stock, taken, everything, *one())
    assert usual.binds(decided) == {"g-0": "n2"}


def test_the_first_alternative_that_a_node_has_is_given() -> None:
    """Two of one class, else one of another."""
    requests = [
        {
            "name": "r",
            "firstAvailable": [
                {"name": "two", "deviceClassName": "gpu", "count": 2},
                {"name": "one", "deviceClassName": "gpu", "count": 1},
            ],
        }
    ]
    decided = closed(claimed.devices("n1", 1), claimed.claim("c", requests=requests), *one())
    assert usual.binds(decided) == {"g-0": "n1"}
    assert given(decided) == ["r/one n1-gpu-0"]


def test_devices_that_must_agree_on_an_attribute_do() -> None:
    """Two on different boards are not two on one."""
    boards = [{"attributes": {"board": {"int": at % 2}}} for at in range(3)]
    stock = [
        claimed.devices("n1", 2, attributes=boards),
        claimed.devices("n2", 3, attributes=boards),
    ]
    agree = [{"matchAttribute": f"{claimed.DRIVER}/board"}]
    decided = closed(*stock, claimed.claim("c", 2, constraints=agree), *one())
    assert given(decided) == ["r n2-gpu-0", "r n2-gpu-2"]


def test_devices_of_all_nodes_are_had_once() -> None:
    """What one node takes is gone for the others at once."""
    stock = claimed.devices("rack", 1, allNodes=True)
    claims = [claimed.claim(name) for name in ("a", "b")]
    first = claimed.group("a", [claimed.pod("a-0", "a", "a", cpu=8)])
    second = claimed.group("b", [claimed.pod("b-0", "b", "b", cpu=8)])
    assert usual.binds(closed(stock, *claims, *first, *second)) == {"a-0": "n1"}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """A driver that publishes anew leaves old slices for a while."""
    old, new = (claimed.devices("n1", count, generation=at) for count, at in ((4, 1), (1, 2)))
    assert usual.binds(closed(old, new, claimed.claim("c", 2), *one())) == {}


def test_admin_access_takes_no_device() -> None:
    """A monitor looks at devices that others use."""
    taken = claimed.claim("old", allocated=["n1-gpu-0"], node="n1")
    watching = claimed.claim("c", adminAccess=True)
    decided = closed(claimed.devices("n1", 1), taken, watching, *one())
    assert usual.binds(decided) == {"g-0": "n1"}


def test_evicting_a_pod_makes_room_among_devices() -> None:
    """A preemptor is promised the devices of its victim, and no victim goes in vain."""
    classes = [builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)]
    held = claimed.claim("old", allocated=["n1-gpu-0"], node="n1")
    victims = claimed.group(
        "old",
        [
            claimed.pod("old-0", "old", "old", node="n1", phase="Running"),
            builders.make_pod("old-1", "old", node="n1", phase="Running"),
        ],
        min_member=0,
        phase="Running",
        priority_class="low",
    )
    newcomer = claimed.group("g", [claimed.pod("g-0", "g", "c")], priority_class="high")
    decided = closed(
        *classes,
        claimed.devices("n1", 1),
        held,
        claimed.claim("c"),
        *victims,
        *newcomer,
        run="allocate, preempt",
    )
    assert [each.task for each in decided.decisions.evictions] == ["default/old-0"]
    assert decided.jobs["default/g"].waiting == 1


QUOTA = [sessions.plugin("capacity"), *usual.TIER]


def limited(*objects: meta.Object, run: str = "enqueue, allocate", **limits: int) -> dict[str, str]:
    """Binds with queue ``q`` limited, and its root ``root``."""
    closed = usual.closed(
        *NODES,
        claimed.device_class(),
        claimed.devices("n1", 4),
        sessions.queue("q", capability={f"deviceclass/{k}": v for k, v in limits.items()}),
        *objects,
        tier=QUOTA,
        run=run,
    )
    return usual.binds(closed)


def claiming(count: int, shared: bool = False) -> list[meta.Object]:
    names = ["c" if shared else f"c{at}" for at in range(count)]
    claims = [claimed.claim(name) for name in sorted(set(names))]
    pods = [claimed.pod(f"g-{at}", "g", name) for at, name in enumerate(names)]
    return [*claims, *claimed.group("g", pods, min_member=1, queue="q")]


def test_a_queue_holds_no_more_devices_than_it_may() -> None:
    """Counted per class; a class that it does not name is not limited."""
    assert len(limited(*claiming(3), gpu=2)) == 2
    assert len(limited(*claiming(3), tpu=1)) == 3
    assert len(limited(*claiming(3), gpu=0)) == 3, "a count of zero sets no limit"


def test_a_shared_claim_is_charged_once() -> None:
    """Three pods around one device use one."""
    assert len(limited(*claiming(3, shared=True), gpu=1)) == 3


def test_running_pods_count() -> None:
    """What the queue holds already is charged when the session opens."""
    held = claimed.claim("old", 2, allocated=["n1-gpu-0", "n1-gpu-1"], node="n1")
    old = claimed.group(
        "old",
        [claimed.pod("old-0", "old", "old", node="n1", phase="Running")],
        queue="q",
        phase="Running",
    )
    assert len(limited(held, *old, *claiming(3), gpu=3)) == 1


def test_a_gang_beyond_its_queues_devices_stays_outside() -> None:
    """Where it says what resources it needs, so that its queue's door is asked at all."""
    claims = [claimed.claim(f"c{at}") for at in range(3)]
    pods = [claimed.pod(f"g-{at}", "g", f"c{at}") for at in range(3)]
    group = claimed.group("g", pods, queue="q", phase="Pending", min_resources={"cpu": 3})
    closed = usual.closed(
        *NODES,
        claimed.device_class(),
        sessions.queue("q", capability={"deviceclass/gpu": 2}),
        *claims,
        *group,
        tier=QUOTA,
        run="enqueue",
    )
    assert closed.jobs["default/g"].phase == "Pending"
    assert closed.events == {
        "default/g": ["queue resource quota insufficient: insufficient dra-resource-exceeded"]
    }


@pytest.mark.parametrize(
    ("enabled", "limits", "bound"),
    [
        (True, {"deviceclass/gpu": 4, "memory.deviceclass/gpu": "100Gi"}, 2),
        (True, {"deviceclass/gpu": 4}, 0),
        (False, {"deviceclass/gpu": 4}, 3),
        (True, {}, 3),
    ],
    ids=["dimension", "class without dimension", "off", "class not named"],
)
def test_capacity_of_devices_is_limited_if_asked_for(
    enabled: bool, limits: dict[str, str | int], bound: int
) -> None:
    """A class that is named without the dimension denies it."""
    claims = [claimed.claim(f"c{at}", capacity={"requests": {"memory": "40Gi"}}) for at in range(3)]
    pods = [claimed.pod(f"g-{at}", "g", f"c{at}") for at in range(3)]
    arguments = {"capacity.DRAConsumableCapacityEnable": enabled}
    decided = usual.closed(
        *NODES,
        claimed.device_class(),
        claimed.devices("n1", 4),
        sessions.queue("q", capability=limits),
        *claims,
        *claimed.group("g", pods, min_member=1, queue="q"),
        tier=[sessions.plugin("capacity", arguments), *usual.TIER],
    )
    assert len(usual.binds(decided)) == bound


def test_a_parents_devices_limit_its_children() -> None:
    """With a tree of queues every queue above is asked."""
    queues = [
        sessions.queue("root"),
        sessions.queue("parent", parent="root", capability={"deviceclass/gpu": 1}),
        sessions.queue("q", parent="parent"),
    ]
    decided = usual.closed(
        *NODES,
        claimed.device_class(),
        claimed.devices("n1", 4),
        *queues,
        *claiming(3),
        tier=[sessions.plugin("capacity", enableHierarchy=True), *usual.TIER],
    )
    assert len(usual.binds(decided)) == 1
