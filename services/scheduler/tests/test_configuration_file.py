"""The configuration file: what is accepted, what is refused, and the line of each mistake."""

from pathlib import Path

import pytest

from stromboli.scheduler import configuration_file
from stromboli.scheduler.core import plugins

REGISTRY = plugins.Registry()
FULL = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
- plugins:
  - name: capacity
    enableHierarchy: true
    arguments: {ancestorReclaimLevel: 1}
  - name: predicates
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
      mostrequested.weight: 2
configurations:
- name: preempt
  arguments: {enableTopologyAwarePreemption: true}
metrics:
  type: prometheus
  address: http://prom.example:9090/
  interval: 15s
"""


def refused(text: str) -> list[str]:
    with pytest.raises(configuration_file.ConfigurationFileError) as caught:
        configuration_file.parse(text, "c.yaml", REGISTRY)
    return caught.value.lines


def warned(text: str) -> tuple[str, ...]:
    return configuration_file.parse(text, "c.yaml", REGISTRY).warnings


def of_plugin(*lines: str) -> str:
    """A configuration with its first plugin in line 4."""
    return "\n".join(
        ["actions: allocate", "tiers:", "- plugins:", *(f"  {line}" for line in lines)]
    )


def test_a_file_in_volcanos_format_is_accepted_unchanged() -> None:
    loaded = configuration_file.parse(FULL, "c.yaml", REGISTRY)
    how = loaded.configuration
    assert loaded.warnings == ()
    assert how.actions == ("enqueue", "allocate", "preempt", "reclaim", "backfill")
    assert [[each.name for each in tier] for tier in how.tiers] == [
        ["priority", "gang"],
        ["capacity", "predicates", "nodeorder"],
    ]
    assert not how.tiers[0][1].is_enabled("enablePreemptable")
    assert how.tiers[1][2].arguments == {"leastrequested.weight": 0, "mostrequested.weight": 2}
    assert how.action_arguments == {"preempt": {"enableTopologyAwarePreemption": True}}
    assert how.metrics is not None
    assert (how.metrics.address, how.metrics.interval_s) == ("http://prom.example:9090", 15.0)


def test_without_a_file_the_default_of_volcanos_chart_applies() -> None:
    loaded = configuration_file.load_default(REGISTRY)
    assert loaded.configuration.actions == ("enqueue", "allocate", "backfill")
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "actions: alocate",
            "c.yaml:1: actions: 'alocate' is not a known action; did you mean allocate?",
        ),
        (
            "actions: allocate, allocate",
            "c.yaml:1: actions: allocate is configured twice; keep one of them",
        ),
        ("tiers: []", "c.yaml:1: actions: it is missing; write: actions:"),
        (
            "actions: allocate\ntier: []",
            "c.yaml:2: tier: 'tier' is not a known key; did you mean tiers?",
        ),
        ("actions: allocate\ntiers: gang", "c.yaml:2: tiers: 'gang' is not a list; write"),
        (
            "actions: allocate\nactions: backfill",
            "c.yaml:2: key 'actions' is duplicate, first used in line 1",
        ),
        ("actions: [allocate", "c.yaml:1: not YAML: "),
        ("", "c.yaml: it contains nothing; write one document with actions and tiers"),
        ("actions: allocate\n---\nactions: allocate", "c.yaml: it contains 2 documents; "),
        ("- allocate", "c.yaml:1: the document: ['allocate'] is not a mapping; write key: value"),
        (
            of_plugin("- name: gangs"),
            "c.yaml:4: tiers[0].plugins[0].name: 'gangs' is not a known plugin; did you mean gang?",
        ),
        (
            of_plugin("- name: gang", "- name: gang"),
            "c.yaml:5: tiers[0].plugins[1].name: gang is configured twice, "
            "first at tiers[0].plugins[0]",
        ),
        (
            of_plugin("- name: gang", "  enableJobRedy: false"),
            "c.yaml:5: tiers[0].plugins[0].enableJobRedy: 'enableJobRedy' is not a known key; "
            "did you mean enableJobReady?",
        ),
        (
            of_plugin("- name: gang", "  enableJobReady: 1"),
            "c.yaml:5: tiers[0].plugins[0].enableJobReady: 1 is neither true nor false",
        ),
        (
            of_plugin("- name: gang", "  arguments: [a]"),
            "c.yaml:5: tiers[0].plugins[0].arguments: ['a'] is not a mapping",
        ),
        (
            of_plugin("- name: drf", "  enableHierarchy: true", "- name: proportion"),
            "c.yaml:5: tiers[0].plugins[0].enableHierarchy: drf with enableHierarchy and "
            "proportion in one tier both order queues; put them in different tiers",
        ),
        (
            "actions: allocate\nconfigurations:\n- name: preempted",
            "c.yaml:3: configurations[0].name: 'preempted' is not a known action; "
            "did you mean preempt?",
        ),
        (
            "actions: allocate\nmetrics:\n  type: elasticsearch\n  address: http://a",
            "c.yaml:3: metrics.type: elasticsearch is not supported; write: type: prometheus",
        ),
        (
            "actions: allocate\nmetrics: {type: prometheus, address: prom, interval: 0s}",
            "c.yaml:2: metrics.address: 'prom' is not a URL; write it with http:// or https://",
        ),
    ],
)
def test_a_mistake_is_reported_with_file_line_key_and_next_step(text: str, line: str) -> None:
    """Nothing of such a file is used."""
    assert refused(text)[0].startswith(line)


def test_all_mistakes_are_reported_together() -> None:
    text = of_plugin("- name: gangs", "- name: gang", "  enableJobOrder: 1") + "\nmetric: {}"
    assert [line.partition(": ")[0] for line in refused(text)] == [
        "c.yaml:7",
        "c.yaml:4",
        "c.yaml:6",
    ]


@pytest.mark.parametrize(
    ("plugin", "line"),
    [
        (
            ("- name: nodeorder", "  arguments:", "    leastrequested.wieght: 2"),
            "c.yaml:6: tiers[0].plugins[0].arguments.leastrequested.wieght: "
            "'leastrequested.wieght' is not a known argument and has no effect; "
            "did you mean leastrequested.weight?",
        ),
        (
            ("- name: nodeorder", "  arguments:", '    mostrequested.weight: "2"'),
            "c.yaml:6: tiers[0].plugins[0].arguments.mostrequested.weight: '2' is not a whole "
            "number; 0 is used; ",
        ),
        (
            ("- name: usage", "  arguments:", "    thresholds:", "      cpuu: 70"),
            "c.yaml:7: tiers[0].plugins[0].arguments.thresholds.cpuu: 'cpuu' is not a known",
        ),
        (
            ("- name: usage", "  arguments:", "    estimator.request_ration: 0.7"),
            "c.yaml:6: tiers[0].plugins[0].arguments.estimator.request_ration: ",
        ),
        (
            ("- name: usage", "  arguments:", "    cpu.weight: -1"),
            "c.yaml:6: tiers[0].plugins[0].arguments.cpu.weight: -1 is negative; 1 is used",
        ),
        (
            ("- name: gang", "  arguments: {weight: 1}"),
            "c.yaml:5: tiers[0].plugins[0].arguments.weight: 'weight' is not a known argument and "
            "has no effect; none is known: remove it",
        ),
        (
            ("- name: proportion", "- name: capacity"),
            "c.yaml:5: tiers[0].plugins[1]: plugin proportion is configured first",
        ),
    ],
)
def test_invalid_arguments_are_reported_and_the_default_is_used(
    plugin: tuple[str, ...], line: str
) -> None:
    """Volcano does the same without a report, so files in use may contain such mistakes."""
    (found,) = warned(of_plugin(*plugin))
    assert found.startswith(line)


def test_arguments_that_only_tune_volcanos_caches_are_accepted_silently() -> None:
    assert (
        warned(of_plugin("- name: predicates", "  arguments: {predicate.CacheEnable: true}")) == ()
    )


def test_a_file_is_read_again_only_when_its_content_changes(tmp_path: Path) -> None:
    """A mounted ConfigMap replaces a symbolic link, so the content is compared."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("actions: allocate")
    second.write_text("actions: enqueue")
    mounted = tmp_path / "c.yaml"
    mounted.symlink_to(first)
    file = configuration_file.ConfigurationFile(mounted, REGISTRY)
    loaded_configuration = file.read_if_changed()
    assert loaded_configuration is not None
    assert loaded_configuration.configuration.actions == ("allocate",)
    assert file.read_if_changed() is None
    mounted.unlink()
    mounted.symlink_to(second)
    changed = file.read_if_changed()
    assert changed is not None
    assert changed.configuration.digest != loaded_configuration.configuration.digest


def test_an_unusable_file_is_reported_once(tmp_path: Path) -> None:
    file = configuration_file.ConfigurationFile(tmp_path / "c.yaml", REGISTRY)
    for content, why in ((None, "No such file"), (b"actions: x", "'x' is not"), (b"\xff", "UTF-8")):
        if content is not None:
            file.path.write_bytes(content)
        with pytest.raises(configuration_file.ConfigurationFileError, match=why):
            file.read_if_changed()
        assert file.read_if_changed() is None
