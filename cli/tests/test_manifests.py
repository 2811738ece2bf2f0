"""Rules of reading manifests."""

from pathlib import Path

import pytest

from stromboli.cli import manifests
from stromboli.cli.errors import CommandError

JOB = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: %s}\n"


def names(found: list[manifests.Manifest]) -> list[str]:
    return [manifest.document["metadata"]["name"] for manifest in found]


def read(tmp_path: Path, text: str, name: str = "jobs.yaml") -> list[manifests.Manifest]:
    file = tmp_path / name
    file.write_text(text)
    return manifests.read([str(file)])


def refusal(tmp_path: Path, text: str, name: str = "jobs.yaml") -> str:
    with pytest.raises(CommandError) as caught:
        read(tmp_path, text, name)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_every_document_of_a_file_is_read_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    text = "---\n" + JOB % "a" + "---\n# nothing\n---\n" + JOB % "b" + "---\n"
    assert names(read(tmp_path, text)) == ["a", "b"]


def test_three_dashes_inside_a_text_do_not_end_a_document(tmp_path: Path) -> None:
    text = JOB % "a" + "note: |\n  before\n  ---\n  after\n"
    (manifest,) = read(tmp_path, text)
    assert manifest.document["note"] == "before\n---\nafter\n"


def test_a_list_is_taken_apart_even_inside_a_list(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- apiVersion: v1
  kind: ConfigMapList
  items:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
"""
    found = read(tmp_path, text)
    assert names(found) == ["a", "b"]
    assert [manifest.line for manifest in found] == [5, 9]


def test_json_is_read_with_tabs_and_several_documents_in_a_row(tmp_path: Path) -> None:
    one = '{\n\t"apiVersion": "v1",\n\t"kind": "Pod",\n\t"metadata": {"name": "%s"}\n}\n'
    found = read(tmp_path, one % "a" + one % "b", "pods.json")
    assert names(found) == ["a", "b"]
    assert [manifest.line for manifest in found] == [1, 6]


def test_yaml_that_begins_with_a_brace_is_still_yaml(tmp_path: Path) -> None:
    assert names(read(tmp_path, "{apiVersion: v1, kind: Pod, metadata: {name: a}}")) == ["a"]


def test_a_directory_gives_its_manifests_by_name_and_none_below(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(JOB % "b")
    (tmp_path / "a.yaml").write_text(JOB % "a")
    (tmp_path / "README.md").write_text("no manifest")
    (tmp_path / "below.yaml").mkdir()
    (tmp_path / "below.yaml" / "c.yaml").write_text(JOB % "c")
    assert names(manifests.read([str(tmp_path)])) == ["a", "b"]


def test_stdin_is_one_more_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB % "a")
    assert names(manifests.read([str(tmp_path / "a.yaml"), "-"], (JOB % "b",))) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("0644", 420),
        ("8080", 8080),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("500m", "500m"),
        ("true", True),
        ("~", None),
        ("nan", "nan"),
    ],
)
def test_scalars_are_what_kubernetes_takes_them_for(
    tmp_path: Path, text: str, value: object
) -> None:
    (manifest,) = read(tmp_path, JOB % "a" + f"value: {text}\n")
    assert manifest.document["value"] == value
    assert type(manifest.document["value"]) is type(value)


def test_keys_are_text_whatever_they_look_like(tmp_path: Path) -> None:
    (manifest,) = read(tmp_path, JOB % "a" + "value: {1: a, true: b}\n")
    assert manifest.document["value"] == {"1": "a", "true": "b"}


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    text = JOB % "a" + "base: &base {cpu: 1}\nvalue: {<<: *base, memory: 1Gi}\n"
    (manifest,) = read(tmp_path, text)
    assert manifest.document["value"] == {"cpu": 1, "memory": "1Gi"}


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            JOB % "a" + "spec:\n  queue: a\n  queue: b\n",
            "jobs.yaml",
            "jobs.yaml:6: key 'queue' is duplicate, first used in line 5",
        ),
        ('{"a": 1,\n"a": 2}', "a.json", "a.json:1: 'a' occurs twice"),
        ("a: 1\nb: [1,\nc: }\n", "jobs.yaml", "jobs.yaml:3: not YAML"),
        ('{"a": 1,\n"b" 2}', "a.json", "a.json:2: not JSON"),
        ("a: !python/object:os.system x\n", "jobs.yaml", "jobs.yaml:1: not YAML"),
        ("kind: Job\n", "jobs.yaml", "jobs.yaml:1: not a Kubernetes object: it has no apiVersion"),
        ("- 1\n", "jobs.yaml", "jobs.yaml:1: not a Kubernetes object, but a list"),
        ("# nothing\n", "jobs.yaml", "jobs.yaml: it contains no object"),
        ("a: b\x00c\n", "jobs.yaml", "jobs.yaml: not YAML"),
    ],
)
def test_an_invalid_manifest_is_reported_with_file_and_line(
    tmp_path: Path, text: str, name: str, message: str
) -> None:
    assert refusal(tmp_path, text, name).startswith(message)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"absent\.yaml: No such file"):
        manifests.read([str(tmp_path / "absent.yaml")])
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="not text: byte 0"):
        manifests.read([str(tmp_path / "binary.yaml")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(CommandError, match="no manifest in this directory"):
        manifests.read([str(tmp_path / "empty")])


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("spec.tasks[1].name", 8),
        ("spec.tasks[1].replicas", 8),
        ("spec.limits.nvidia.com/gpu", 10),
        ('spec.limits["nvidia.com/gpu"]', 10),
        ("spec.absent", 4),
        ("", 1),
    ],
)
def test_a_path_is_resolved_to_its_line_or_the_nearest_one(
    tmp_path: Path, path: str, line: int
) -> None:
    text = (
        JOB % "a" + "spec:\n  tasks:\n  - name: a\n    replicas: 1\n  - name: b\n"
        "  limits:\n    nvidia.com/gpu: 1\n"
    )
    (manifest,) = read(tmp_path, text)
    assert manifest.place(path) == f"{tmp_path}/jobs.yaml:{line}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 200 + "]" * 200, "nested too deeply"),
        ("a:\n" + "".join(f"{' ' * level}- \n" for level in range(1, 300)), "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        (
            "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)),
            "after expanding aliases",
        ),
        ("a: &a [*a]", "an alias refers to the anchor that contains it"),
    ],
    ids=["flow", "block", "unclosed", "billion", "endless"],
)
def test_a_document_that_would_grow_without_bound_is_refused_with_its_line(
    text: str, said: str
) -> None:
    with pytest.raises(CommandError, match=said) as news:
        manifests.parse(text, "m.yaml")
    assert "m.yaml:" in str(news.value)


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(CommandError, match="nested too deeply"):
        manifests.parse('{"a":' * 100_000, "m.json")
