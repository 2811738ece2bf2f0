"""Images for the engine of the tests, made without a registry.

The base image of our Dockerfiles is Debian's Python (``tools/real/base_images.py``). Third-party
images that Compose and the charts name are made of the programs that ``make real-tools`` has built,
with the entry points, users and folders of the originals, so that Compose files, Dockerfiles and
charts run unchanged:

* Kafka: its jars, with the class by which its image turns variables into settings,
* the control plane: KWOK, etcd and Kubernetes on busybox,
* kubectl and Prometheus.

An image has the digest of its recipe as a label; it is made once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stromboli.testkit.parts.engine.daemon import Engine
from stromboli.testkit.parts.tools import Tools

PYTHON = "python:3.13-slim"
LABEL = "stromboli.test.recipe"
REVISION = "1"  # increase it to rebuild the third-party images
LOCAL_CERTIFICATES = Path("/usr/local/share/ca-certificates")
"""Directory in which Debian keeps certificates that an administrator added, such as a proxy's."""
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kwok", "kwokctl")
BUSYBOX = """FROM scratch
COPY busybox /bin/busybox
COPY passwd /etc/passwd
RUN ["/bin/busybox", "mkdir", "-p", "/tmp", "/root", "/usr/bin", "/usr/sbin", "/sbin"]
RUN ["/bin/busybox", "--install", "-s"]
RUN chmod 1777 /tmp
"""
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"
KAFKA_RUN = r"""#!/bin/bash
made=$(java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \
  --default-configs-dir=/etc/kafka/docker --mounted-configs-dir=/mnt/shared/config \
  --final-configs-dir=/opt/kafka/config 2>&1) || [[ $made == *"already formatted"* ]] || {
  echo "$made"
  exit 1
}
exec /opt/kafka/bin/kafka-server-start.sh /opt/kafka/config/server.properties
"""
KAFKA_CLASS = """#!/bin/bash
exec java $KAFKA_HEAP_OPTS -cp '/opt/kafka/libs/*' {name} "$@"
"""
LOG4J = json.dumps(
    {
        "Configuration": {
            "Properties": {"Property": []},
            "Appenders": {"Console": {"name": "STDOUT"}},
            "Loggers": {
                "Root": {"level": "WARN", "AppenderRef": [{"ref": "STDOUT"}]},
                "Logger": [{"name": "kafka", "level": "WARN"}],
            },
        }
    }
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A Dockerfile and its build context: path -> a file or folder of this machine, or a text.
    ``executable``: texts that are programs."""

    dockerfile: str
    files: Mapping[str, Path]
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    executable: tuple[str, ...] = ()

    def digest(self) -> str:
        """Digest of the recipe. Files of the tools count with their paths, which contain a digest
        of their content."""
        parts = [REVISION, self.dockerfile, *map(str, self.files.values()), *self.texts.values()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def control_plane(engine: Engine, tools: Tools) -> Recipe:
    """The image of a control plane, like KWOK's: its programs and the variables that name them."""
    version = json.loads(
        subprocess.run(
            [tools.program("kubectl"), "version", "--client", "--output=json"],
            check=True,
            capture_output=True,
        ).stdout
    )["clientVersion"]["gitVersion"]
    variables = {
        f"KWOK_{name.upper().replace('-', '_')}_BINARY": f"/usr/local/bin/{name}"
        for name in CONTROL_PLANE
        if not name.startswith("kwok")
    } | {
        "KWOK_CONTROLLER_BINARY": "/usr/local/bin/kwok",
        "KWOK_RUNTIME": "binary",
        "KWOK_KUBE_APISERVER_PORT": "0",
        "KWOK_KUBE_APISERVER_INSECURE_PORT": "8080",
        "KWOK_BIND_ADDRESS": "0.0.0.0",
        "KWOK_KUBE_VERSION": version,
    }
    lines = "".join(f"ENV {name}={value}\n" for name, value in variables.items())
    copies = "".join(f"COPY {name} /usr/local/bin/{name}\n" for name in CONTROL_PLANE)
    programs = {name: Path(tools.program(name)) for name in CONTROL_PLANE}
    return _on_busybox(engine, copies + lines, programs)


def kubectl(tools: Tools) -> Recipe:
    """The image of kubectl, like Kubernetes' own: the program alone."""
    text = 'FROM scratch\nCOPY kubectl /bin/kubectl\nENTRYPOINT ["/bin/kubectl"]\n'
    return Recipe(text, {"kubectl": Path(tools.program("kubectl"))})


def prometheus(engine: Engine, tools: Tools) -> Recipe:
    """The image of Prometheus, like its own: on busybox, with an unprivileged user who owns its
    folder."""
    text = """COPY prometheus /bin/prometheus
RUN mkdir /prometheus && chown 65534:65534 /prometheus
USER nobody
WORKDIR /prometheus
VOLUME ["/prometheus"]
ENTRYPOINT ["/bin/prometheus"]
"""
    return _on_busybox(engine, text, {"prometheus": Path(tools.program("prometheus"))})


def kafka(tools: Tools) -> Recipe:
    """The image of Kafka, like its own: settings from variables, and the scripts that the chart
    calls."""
    java = tools.java.resolve().parents[1]
    text = f"""FROM {PYTHON}
RUN mkdir -p /opt/kafka/bin /opt/kafka/config /etc/kafka/docker /mnt/shared/config \
/var/lib/kafka/data && chown -R 1000:1000 /opt/kafka /mnt/shared /var/lib/kafka /etc/kafka
COPY java /opt/java
COPY libs /opt/kafka/libs
COPY log4j2.yaml tools-log4j2.yaml server.properties run /etc/kafka/docker/
COPY kafka-storage.sh kafka-server-start.sh /opt/kafka/bin/
ENV PATH=/opt/java/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 1000:1000
CMD ["/etc/kafka/docker/run"]
"""
    texts = {
        "log4j2.yaml": LOG4J,
        "tools-log4j2.yaml": LOG4J,
        "server.properties": "",
        "run": KAFKA_RUN,
        "kafka-storage.sh": KAFKA_CLASS.format(name="kafka.tools.StorageTool"),
        "kafka-server-start.sh": KAFKA_CLASS.format(name="kafka.Kafka"),
    }
    programs = ("run", "kafka-storage.sh", "kafka-server-start.sh")
    return Recipe(text, {"java": java, "libs": tools.libs}, texts, programs)


def _on_busybox(engine: Engine, text: str, files: Mapping[str, Path]) -> Recipe:
    busybox = {"busybox": Path(engine.tools.busybox)}
    return Recipe(BUSYBOX + text, {**busybox, **files}, {"passwd": PASSWD})


def make(engine: Engine, name: str, recipe: Recipe) -> None:
    """Build an image under a name, unless it exists with the recipe's digest. Raises
    EngineError."""
    label = recipe.digest()
    if _label(engine, name) == label:
        return
    with tempfile.TemporaryDirectory(prefix="strom-image-") as made:
        folder = Path(made)
        for place, source in recipe.files.items():
            if source.is_dir():
                shutil.copytree(source, folder / place, copy_function=_link, ignore=_dangling)
            else:
                _link(source, folder / place)
        for place, text in recipe.texts.items():
            (folder / place).write_text(text)
            (folder / place).chmod(0o755 if place in recipe.executable else 0o644)
        (folder / "Dockerfile").write_text(recipe.dockerfile)
        engine.docker("build", f"--label={LABEL}={label}", f"--tag={name}", ".", folder=folder)


def make_python(engine: Engine) -> None:
    """Import the base image of our Dockerfiles under its name, unless it exists."""
    tar = Path(engine.tools.python_image)
    if _label(engine, PYTHON) == tar.parent.name:
        return
    changes = ("ENV LANG=C.UTF-8", 'CMD ["python3"]', f"LABEL {LABEL}={tar.parent.name}")
    options = [f"--change={change}" for change in changes]
    engine.docker("import", *options, str(tar), PYTHON)


def certificates() -> str:
    """The PEM certificates that an administrator of this machine added: CA_CERTIFICATES of our
    Dockerfiles, so that a build behind an intercepting proxy trusts it."""
    paths = sorted(LOCAL_CERTIFICATES.rglob("*.crt")) if LOCAL_CERTIFICATES.is_dir() else []
    return "\n".join(path.read_text() for path in paths)


def _label(engine: Engine, name: str) -> str | None:
    listed = engine.docker(
        "images",
        "--quiet",
        "--no-trunc",
        "--filter",
        f"label={LABEL}",
        f"--filter=reference={name}",
    )
    if not listed.strip():
        return None
    template = f'{{{{index .Config.Labels "{LABEL}"}}}}'
    return engine.docker("image", "inspect", f"--format={template}", name).strip()


def _dangling(folder: str, names: list[str]) -> list[str]:
    """Dangling links, such as the one of Debian's Java to its sources."""
    return [name for name in names if not Path(folder, name).exists()]


def _link(source: str | Path, target: str | Path) -> str:
    """Hard-link a file, which costs no space, or copy it on another file system."""
    try:
        os.link(Path(source).resolve(), target)  # Linux would link the link itself
    except OSError:
        shutil.copy2(source, target)
    return str(target)
