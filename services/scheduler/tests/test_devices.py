"""Dynamic resource allocation: pods are placed where the devices that they claim are available."""

import pytest

from services.scheduler.tests.support import default_sessions, device_claims, sessions
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

NODES = [builders.make_node("n1"), builders.make_node("n2")]


def closed(*objects: meta.Object, run: str = "allocate") -> session.Session:
    return default_sessions.closed(*NODES, device_claims.device_class(), *objects, run=run)


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
    return device_claims.group("g", [device_claims.pod("g-0", "g", claim)])


def test_a_pod_goes_where_its_devices_are() -> None:
    """The claim is given them before the pod is bound."""
    decided = closed(device_claims.devices("n2", 2), device_claims.claim("c", 2), *one())
    assert default_sessions.binds(decided) == {"g-0": "n2"}
    assert given(decided) == ["r n2-gpu-0", "r n2-gpu-1"]
    (step,) = decided.decisions.preparations["default/g-0"]
    assert isinstance(step, messages.ClaimedDevices)
    assert step.allocation is not None
    assert step.allocation.node_selector == device_claims.named("n2")


def test_devices_are_counted() -> None:
    """Of three pods with a device each two find one; a gang of three finds none."""
    claims = [device_claims.claim(f"c{at}") for at in range(3)]
    pods = [device_claims.pod(f"g-{at}", "g", f"c{at}") for at in range(3)]
    stock = device_claims.devices("n1", 2)
    alone = closed(stock, *claims, *device_claims.group("g", pods, min_member=1))
    assert default_sessions.binds(alone) == {"g-0": "n1", "g-1": "n1"}
    gang = closed(stock, *claims, *device_claims.group("g", pods))
    assert default_sessions.binds(gang) == {}
    assert "2 cannot allocate all claims" in why(gang)


def test_a_discarded_gang_releases_its_devices() -> None:
    """What a discarded trial was given, the next job may have."""
    claims = [device_claims.claim(name) for name in ("a0", "a1", "b0")]
    big = [device_claims.pod(f"a-{at}", "a", f"a{at}") for at in range(2)]
    small = [device_claims.pod("b-0", "b", "b0")]
    decided = closed(
        device_claims.devices("n1", 1),
        *claims,
        *device_claims.group("a", big),
        *device_claims.group("b", small),
    )
    assert default_sessions.binds(decided) == {"b-0": "n1"}


def test_devices_that_others_have_are_not_free() -> None:
    """A claim keeps what it has, whether its pod is seen or not."""
    claim = device_claims.claim("old", allocated=["n1-gpu-0"], node="n1")
    assert (
        default_sessions.binds(
            closed(device_claims.devices("n1", 1), claim, device_claims.claim("c"), *one())
        )
        == {}
    )


def test_a_claim_that_has_its_devices_ties_its_pods_to_them() -> None:
    """Even if other nodes have free ones."""
    stock = [device_claims.devices("n1", 1), device_claims.devices("n2", 1)]
    claim = device_claims.claim("c", allocated=["n2-gpu-0"], node="n2")
    decided = closed(*stock, claim, *one())
    assert default_sessions.binds(decided) == {"g-0": "n2"}
    reserved = messages.ClaimedDevices(claim="c", uid="")
    assert decided.decisions.preparations == {"default/g-0": [reserved]}


def test_pods_that_share_a_claim_share_its_node_and_its_devices() -> None:
    """The second follows the first, and takes nothing more."""
    stock = [device_claims.devices("n1", 1), device_claims.devices("n2", 1)]
    pods = [device_claims.pod(f"g-{at}", "g", "c") for at in range(3)]
    decided = closed(*stock, device_claims.claim("c"), *device_claims.group("g", pods))
    assert set(default_sessions.binds(decided).values()) == {"n1"}


def test_a_claim_from_a_template_is_found_by_the_pods_status() -> None:
    """A claim that does not exist yet keeps its pod waiting."""
    stock = device_claims.devices("n1", 1)
    objs = [
        device_claims.claim("made"),
        *device_claims.group("g", [device_claims.from_template("g-0", "g", "made")]),
    ]
    assert default_sessions.binds(closed(stock, *objs)) == {"g-0": "n1"}
    waits = device_claims.group("g", [device_claims.from_template("g-0", "g", None)])
    decided = closed(stock, device_claims.claim("other"), *waits)
    assert default_sessions.binds(decided) == {}
    assert "resource claim c of the pod does not exist yet" in why(decided)


def test_a_template_that_needs_no_claim_needs_no_device() -> None:
    """Its status names the entry without a claim."""
    group = device_claims.group("g", [device_claims.from_template("g-0", "g", "")])
    assert default_sessions.binds(closed(device_claims.claim("other"), *group)) == {"g-0": "n1"}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([device_claims.claim("other")], 'could not find resourceclaim "c"'),
        (
            [device_claims.claim("c", deviceClassName="tpu")],
            "request r: device class tpu does not exist",
        ),
        (
            [device_claims.claim("c", constraints=[{"distinctAttribute": "a/b"}])],
            "resourceclaim default/c: constraints other than matchAttribute are not supported",
        ),
        (
            [device_claims.claim("c", -1)],
            "resourceclaim default/c: request r: count -1 is negative",
        ),
        (
            [device_claims.claim("c", requests=[{"name": "r"}])],
            "resourceclaim default/c: request r has neither exactly nor firstAvailable",
        ),
    ],
)
def test_a_claim_that_cannot_be_served_is_explained(
    objects: list[meta.Object], message: str
) -> None:
    """And stops no other pod."""
    other = device_claims.group("h", [builders.make_pod("h-0", "h")])
    decided = closed(device_claims.devices("n1", 1), *objects, *one(), *other)
    assert default_sessions.binds(decided) == {"h-0": "n1"}
    assert message in why(decided)


def test_selectors_of_class_and_request_both_hold() -> None:
    """Attributes without a domain are the driver's; quantities compare as such."""
    facts = [
        {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "80Gi"}}},
        {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "40Gi"}}},
        {"attributes": {"model": {"string": "b"}}, "capacity": {"memory": {"value": "80Gi"}}},
    ]
    domain = f'device.attributes["{device_claims.DRIVER}"]'
    memory = f'device.capacity["{device_claims.DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    own = device_claims.device_class(
        "gpu", f'device.driver == "{device_claims.DRIVER}"', f'{domain}.model == "a"'
    )
    requested = device_claims.claim("c", selectors=[{"cel": {"expression": memory}}])
    decided = default_sessions.closed(
        *NODES, own, device_claims.devices("n1", 3, attributes=facts), requested, *one()
    )
    assert given(decided) == ["r n1-gpu-0"]


@pytest.mark.parametrize(
    "expression", ['device.attributes["other"].healthy', "device.driver ==", "1 + 1"]
)
def test_a_selector_that_cannot_be_evaluated_allows_nothing(expression: str) -> None:
    """Unknown is not yes: the node is refused with the expression and its error."""
    objects = [device_claims.devices("n1", 1), device_claims.claim("c"), *one()]
    decided = default_sessions.closed(
        *NODES, device_claims.device_class("gpu", expression), *objects
    )
    assert default_sessions.binds(decided) == {}
    assert f"selector {expression!r}" in why(decided)


def test_a_selector_may_ask_whether_there_is_an_attribute() -> None:
    """Of a domain that the device knows nothing of, too."""
    asks = device_claims.device_class("gpu", '!has(device.attributes["other"].healthy)')
    decided = default_sessions.closed(
        *NODES, asks, device_claims.devices("n1", 1), device_claims.claim("c"), *one()
    )
    assert default_sessions.binds(decided) == {"g-0": "n1"}


def test_requests_get_different_devices_if_there_is_any_way() -> None:
    """An earlier request with few constraints does not take the only device of a later one."""
    facts = [{"attributes": {"big": {"bool": True}}}, {"attributes": {"big": {"bool": False}}}]
    big = f'device.attributes["{device_claims.DRIVER}"].big'
    requests = [
        {"name": "any", "exactly": {"deviceClassName": "gpu"}},
        {
            "name": "big",
            "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": big}}]},
        },
    ]
    stock = device_claims.devices("n1", 2, attributes=facts)
    decided = closed(stock, device_claims.claim("c", requests=requests), *one())
    assert given(decided) == ["any n1-gpu-1", "big n1-gpu-0"]


def test_parts_of_devices_are_not_given_away() -> None:
    """They may overlap, and what is left of the whole is not computed."""
    part = {"consumesCounters": [{"counterSet": "card"}]}
    stock = device_claims.devices("n1", 2, attributes=[part])
    assert given(closed(stock, device_claims.claim("c"), *one())) == ["r n1-gpu-1"]
    assert default_sessions.binds(closed(stock, device_claims.claim("c", 2), *one())) == {}


def test_all_means_every_device_of_a_node_and_none_taken() -> None:
    """A node with an allocated device cannot give all."""
    stock = [device_claims.devices("n1", 2), device_claims.devices("n2", 3)]
    everything = device_claims.claim("c", allocationMode="All")
    claim = device_claims.claim("old", allocated=["n1-gpu-0"], node="n1")
    decided = closed(*stock, claim, everything, *one())
    assert default_sessions.binds(decided) == {"g-0": "n2"}


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
    decided = closed(
        device_claims.devices("n1", 1), device_claims.claim("c", requests=requests), *one()
    )
    assert default_sessions.binds(decided) == {"g-0": "n1"}
    assert given(decided) == ["r/one n1-gpu-0"]


def test_devices_that_must_agree_on_an_attribute_do() -> None:
    """Two on different boards are not two on one."""
    boards = [{"attributes": {"board": {"int": at % 2}}} for at in range(3)]
    stock = [
        device_claims.devices("n1", 2, attributes=boards),
        device_claims.devices("n2", 3, attributes=boards),
    ]
    agree = [{"matchAttribute": f"{device_claims.DRIVER}/board"}]
    decided = closed(*stock, device_claims.claim("c", 2, constraints=agree), *one())
    assert given(decided) == ["r n2-gpu-0", "r n2-gpu-2"]


def test_devices_of_all_nodes_are_had_once() -> None:
    """A device that one node takes is no longer available on the others."""
    stock = device_claims.devices("rack", 1, allNodes=True)
    claims = [device_claims.claim(name) for name in ("a", "b")]
    first = device_claims.group("a", [device_claims.pod("a-0", "a", "a", cpu=8)])
    second = device_claims.group("b", [device_claims.pod("b-0", "b", "b", cpu=8)])
    assert default_sessions.binds(closed(stock, *claims, *first, *second)) == {"a-0": "n1"}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """A driver that publishes again leaves old slices for a while."""
    old, new = (device_claims.devices("n1", count, generation=at) for count, at in ((4, 1), (1, 2)))
    assert default_sessions.binds(closed(old, new, device_claims.claim("c", 2), *one())) == {}


def test_admin_access_takes_no_device() -> None:
    """A monitoring pod reads devices that others use."""
    claim = device_claims.claim("old", allocated=["n1-gpu-0"], node="n1")
    watching = device_claims.claim("c", adminAccess=True)
    decided = closed(device_claims.devices("n1", 1), claim, watching, *one())
    assert default_sessions.binds(decided) == {"g-0": "n1"}


def test_evicting_a_pod_makes_room_among_devices() -> None:
    """A preemptor is nominated to the devices of its victim, and no pod is evicted in vain."""
    classes = [builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)]
    claim = device_claims.claim("old", allocated=["n1-gpu-0"], node="n1")
    victims = device_claims.group(
        "old",
        [
            device_claims.pod("old-0", "old", "old", node="n1", phase="Running"),
            builders.make_pod("old-1", "old", node="n1", phase="Running"),
        ],
        min_member=0,
        phase="Running",
        priority_class="low",
    )
    newcomer = device_claims.group("g", [device_claims.pod("g-0", "g", "c")], priority_class="high")
    decided = closed(
        *classes,
        device_claims.devices("n1", 1),
        claim,
        device_claims.claim("c"),
        *victims,
        *newcomer,
        run="allocate, preempt",
    )
    assert [each.task for each in decided.decisions.evictions] == ["default/old-0"]
    assert decided.jobs["default/g"].waiting == 1


QUOTA = [sessions.plugin("capacity"), *default_sessions.TIER]


def limited(*objects: meta.Object, run: str = "enqueue, allocate", **limits: int) -> dict[str, str]:
    """Binds with queue ``q`` limited, and its root ``root``."""
    closed = default_sessions.closed(
        *NODES,
        device_claims.device_class(),
        device_claims.devices("n1", 4),
        sessions.queue("q", capability={f"deviceclass/{k}": v for k, v in limits.items()}),
        *objects,
        tier=QUOTA,
        run=run,
    )
    return default_sessions.binds(closed)


def claims(count: int, shared: bool = False) -> list[meta.Object]:
    names = ["c" if shared else f"c{at}" for at in range(count)]
    claims = [device_claims.claim(name) for name in sorted(set(names))]
    pods = [device_claims.pod(f"g-{at}", "g", name) for at, name in enumerate(names)]
    return [*claims, *device_claims.group("g", pods, min_member=1, queue="q")]


def test_a_queue_holds_no_more_devices_than_it_may() -> None:
    """Counted per class; a class that it does not name is not limited."""
    assert len(limited(*claims(3), gpu=2)) == 2
    assert len(limited(*claims(3), tpu=1)) == 3
    assert len(limited(*claims(3), gpu=0)) == 3, "a count of zero sets no limit"


def test_a_shared_claim_is_charged_once() -> None:
    """Three pods around one device use one."""
    assert len(limited(*claims(3, shared=True), gpu=1)) == 3


def test_running_pods_count() -> None:
    """What the queue holds already is charged when the session opens."""
    claim = device_claims.claim("old", 2, allocated=["n1-gpu-0", "n1-gpu-1"], node="n1")
    old = device_claims.group(
        "old",
        [device_claims.pod("old-0", "old", "old", node="n1", phase="Running")],
        queue="q",
        phase="Running",
    )
    assert len(limited(claim, *old, *claims(3), gpu=3)) == 1


def test_a_gang_beyond_its_queues_devices_stays_outside() -> None:
    """If it declares its minimum resources, so that its queue can check them."""
    claims = [device_claims.claim(f"c{at}") for at in range(3)]
    pods = [device_claims.pod(f"g-{at}", "g", f"c{at}") for at in range(3)]
    group = device_claims.group("g", pods, queue="q", phase="Pending", min_resources={"cpu": 3})
    closed = default_sessions.closed(
        *NODES,
        device_claims.device_class(),
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
    claims = [
        device_claims.claim(f"c{at}", capacity={"requests": {"memory": "40Gi"}}) for at in range(3)
    ]
    pods = [device_claims.pod(f"g-{at}", "g", f"c{at}") for at in range(3)]
    arguments = {"capacity.DRAConsumableCapacityEnable": enabled}
    decided = default_sessions.closed(
        *NODES,
        device_claims.device_class(),
        device_claims.devices("n1", 4),
        sessions.queue("q", capability=limits),
        *claims,
        *device_claims.group("g", pods, min_member=1, queue="q"),
        tier=[sessions.plugin("capacity", arguments), *default_sessions.TIER],
    )
    assert len(default_sessions.binds(decided)) == bound


def test_a_parents_devices_limit_its_children() -> None:
    """With a tree of queues all ancestors are checked."""
    queues = [
        sessions.queue("root"),
        sessions.queue("parent", parent="root", capability={"deviceclass/gpu": 1}),
        sessions.queue("q", parent="parent"),
    ]
    decided = default_sessions.closed(
        *NODES,
        device_claims.device_class(),
        device_claims.devices("n1", 4),
        *queues,
        *claims(3),
        tier=[sessions.plugin("capacity", enableHierarchy=True), *default_sessions.TIER],
    )
    assert len(default_sessions.binds(decided)) == 1
