"""What Helm makes of the charts: linted, refused where values are wrong, safe by default."""

import msgspec
import pytest

from stromboli.console import __main__ as console
from stromboli.console.settings import Settings as ConsoleSettings
from stromboli.history.settings import Settings as HistorySettings
from stromboli.shared.jobspec.policies import pod_annotations
from stromboli.shared.runtime import settings
from stromboli.testkit.parts import tools
from tests.charts.support import helm, rbac_rights

pytestmark = pytest.mark.real
TRIAL = ("--set", "global.kafka.trial=true")


@pytest.fixture(scope="module")
def whole(real_tools: tools.Tools) -> list[helm.Object]:
    """Everything, with the broker to try things with."""
    return helm.rendered("stromboli", *TRIAL, release="stromboli")


@pytest.mark.parametrize("chart", helm.CHARTS)
def test_a_chart_passes_lint(chart: str, real_tools: tools.Tools) -> None:
    options = [] if chart in ("base", "kafka") else [*helm.BROKERS]
    options += {"history": helm.DATABASE, "console": helm.REST}.get(chart, ())
    path = str(helm.CHARTS[chart])
    said = helm.run("lint", "--strict", path, "--kube-version", helm.KUBERNETES, *options)
    assert "WARNING" not in said


@pytest.mark.parametrize(
    ("chart", "options", "said"),
    [
        ("monitor", ("--set", "replicas=two"), "at '/replicas': got string, want integer"),
        ("monitor", ("--set", "replica=3"), "additional properties 'replica' not allowed"),
        (
            "scheduler",
            ("--set", "settings.sync_max_age=3"),
            "at '/settings': additional properties 'sync_max_age' not allowed",
        ),
        ("scheduler", ("--set", "settings.seed=x"), "at '/settings/seed': got string"),
        ("controller", ("--set", "settings.kafka=x"), "'kafka' not allowed"),
        ("admission", ("--set", "certificate.by=me"), "must be one of 'own', 'cert-manager'"),
        ("stromboli", ("--set", "admission.judgedBy=me"), "at '/judgedBy': value must be one of"),
        ("admission", ("--set", "rest.enabled=maybe"), "at '/rest/enabled': got string"),
        ("admission", ("--set", "settings.accounts=true"), "'accounts' not allowed"),
        (
            "stromboli",
            ("--set", "global.kafka.security=TLS"),
            "'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'",
        ),
        ("monitor", ("--set", "global.kafka.bootstrap={kafka}"), "'kafka' does not match"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    chart: str, options: tuple[str, ...], said: str, real_tools: tools.Tools
) -> None:
    with pytest.raises(helm.HelmError) as refused:
        helm.rendered(chart, *helm.BROKERS, *options)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "global.kafka.bootstrap is empty: name your brokers"),
        ((*TRIAL, *helm.BROKERS), "set one of them"),
        (
            (*helm.BROKERS, "--set", "global.kafka.security=SASL_SSL"),
            "global.kafka.sasl.secret: name the Secret",
        ),
    ],
)
def test_a_missing_value_is_reported_with_the_next_step(
    options: tuple[str, ...], said: str, real_tools: tools.Tools
) -> None:
    with pytest.raises(helm.HelmError) as refused:
        helm.rendered("monitor", *options)
    assert said in str(refused.value)


def test_nothing_of_the_system_runs_with_more_rights_than_it_needs(
    whole: list[helm.Object],
) -> None:
    """Neither the services nor the broker: the API server checks the same by Pod Security."""
    workloads = [*helm.of_kind(whole, "Deployment"), *helm.of_kind(whole, "StatefulSet")]
    assert len(workloads) == 5
    for each in workloads:
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["priorityClassName"] == "stromboli-system"
        assert pod["schedulerName"] == "default-scheduler"
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert container["resources"]["limits"]["memory"]
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


def test_the_scheduler_has_no_kubernetes_access_at_all(whole: list[helm.Object]) -> None:
    """No rule names its account, and its pods have no token."""
    pod = helm.the_only(whole, "Deployment", "-scheduler")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for each in helm.of_kind(whole, kind):
            assert pod["serviceAccountName"] not in [it["name"] for it in each["subjects"]]
    policy = helm.the_only(whole, "NetworkPolicy", "-scheduler")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])]
    assert not {443, 6443} & set(ports)


def test_one_release_of_all_and_one_for_each_make_the_same_names(
    whole: list[helm.Object], real_tools: tools.Tools
) -> None:
    """A user can change from one to the other."""
    together = {(each["kind"], each["metadata"]["name"]) for each in whole}
    for service in helm.SERVICES:
        for each in helm.rendered(service, *helm.BROKERS):
            assert (each["kind"], each["metadata"]["name"]) in together


def test_objects_of_other_projects_are_off_by_default(whole: list[helm.Object]) -> None:
    """A cluster without the Prometheus operator and without cert-manager takes everything."""
    groups = {each["apiVersion"].partition("/")[0] for each in whole}
    assert not {group for group in groups if group.endswith((".coreos.com", "cert-manager.io"))}


def test_monitoring_and_cert_manager_are_rendered_when_enabled(real_tools: tools.Tools) -> None:
    options = ("--set", "serviceMonitor.enabled=true", "--set", "certificate.by=cert-manager")
    objects = helm.rendered("admission", *helm.BROKERS, *options)
    monitor = helm.the_only(objects, "ServiceMonitor")
    service = helm.the_only(objects, "Service")
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in [
        port["name"] for port in service["spec"]["ports"]
    ]
    certificate = helm.the_only(objects, "Certificate")
    host = f"{service['metadata']['name']}.batch.svc"
    assert certificate["spec"]["dnsNames"] == [host]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = helm.the_only(objects, kind)["metadata"]["annotations"]
        name = annotations["cert-manager.io/inject-ca-from"]
        assert name == f"batch/{certificate['metadata']['name']}"
    # What cert-manager writes, the pod reads; and the service needs no right to do it itself.
    pod = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]
    secrets = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
    assert secrets == [certificate["spec"]["secretName"]]
    rules = helm.the_only(objects, "Role")["rules"]
    assert {each["resources"][0] for each in rules} == {"leases"}


def test_pods_are_shown_to_us_only_where_groups_or_gates_need_it(
    whole: list[helm.Object], real_tools: tools.Tools
) -> None:
    def resources(objects: list[helm.Object]) -> set[str]:
        configuration = helm.the_only(objects, "MutatingWebhookConfiguration")
        return {it for each in configuration["webhooks"] for it in each["rules"][0]["resources"]}

    assert "pods" not in resources(whole)
    groups = '[{"resourceGroup": "gpu", "object": {"key": "namespace", "value": ["ml"]}}]'
    for value in (f"resourceGroups={groups}", "queueGates=true"):
        objects = helm.rendered("admission", *helm.BROKERS, "--set-json", value)
        assert "pods" in resources(objects)


def test_no_object_contains_the_brokers_secrets(real_tools: tools.Tools) -> None:
    """They are named, and read by the pod from the user's own Secrets."""
    settings = (
        "global.kafka.security=SASL_SSL",
        "global.kafka.sasl.secret=account",
        "global.kafka.tls.secret=authority",
    )
    options = [word for setting in settings for word in ("--set", setting)]
    for service in helm.SERVICES:
        objects = helm.rendered(service, *helm.BROKERS, *options)
        (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"][
            "containers"
        ]
        by_name = {each["name"]: each for each in container["env"]}
        reference = by_name["STROM_KAFKA_SASL_PASSWORD"]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": "account", "key": "password"}
        folder = by_name["STROM_KAFKA_TLS_CA_FILE"]["value"].rpartition("/")[0]
        assert folder in [each["mountPath"] for each in container["volumeMounts"]]


def test_a_whole_number_is_written_in_full(real_tools: tools.Tools) -> None:
    """Helm reads numbers as floating point, and would write 1e+06, which is not a whole number."""
    objects = helm.rendered("admission", *helm.BROKERS, "--set", "settings.attempts_kept=1000000")
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "STROM_ADMISSION_ATTEMPTS_KEPT", "value": "1000000"} in container["env"]


OPEN = ("--set", "rest.enabled=true")


def test_rest_is_closed_unless_it_is_opened(whole: list[helm.Object]) -> None:
    """No setting, no port, no right of it: what listens does so on the pod's loopback alone."""
    deployment = helm.the_only(whole, "Deployment", "-admission")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    names = {each["name"] for each in container["env"]}
    assert not names & {"STROM_ADMISSION_ACCOUNTS", "STROM_ADMISSION_REST_HOST"}
    assert "rest" not in [each["name"] for each in container["ports"]]
    assert "rest" not in [
        each["name"] for each in helm.the_only(whole, "Service", "-admission")["spec"]["ports"]
    ]
    rights = rbac_rights.granted(rbac_rights.bound(whole, "stromboli-admission"))
    assert not {each.resource for each in rights} & {"tokenreviews", "subjectaccessreviews", "jobs"}


def test_an_enabled_rest_requires_accounts_on_one_port_of_pod_service_and_policy(
    real_tools: tools.Tools,
) -> None:
    options = (*OPEN, "--set-json", 'rest.from=[{"podSelector": {}}]')
    objects = helm.rendered("admission", *helm.BROKERS, *options)
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    own = {each["name"]: each.get("value") for each in container["env"]}
    assert own["STROM_ADMISSION_ACCOUNTS"] == "true"
    assert own["STROM_ADMISSION_REST_HOST"] == "0.0.0.0"
    number = int(own["STROM_ADMISSION_REST_PORT"])
    assert {"name": "rest", "containerPort": number} in container["ports"]
    served = helm.the_only(objects, "Service")["spec"]["ports"]
    assert {"name": "rest", "port": number, "targetPort": "rest"} in served
    rule = {"ports": [{"protocol": "TCP", "port": number}], "from": [{"podSelector": {}}]}
    assert rule in helm.the_only(objects, "NetworkPolicy")["spec"]["ingress"]


def test_every_image_can_be_given_by_digest(real_tools: tools.Tools) -> None:
    """A digest replaces the tag: what it names cannot be changed in the registry."""
    digest = f"sha256:{64 * 'a'}"
    charts = ("admission", "controller", "kafka", "monitor", "scheduler")
    options = [part for chart in charts for part in ("--set", f"{chart}.image.digest={digest}")]
    found = helm.rendered("stromboli", *TRIAL, *options, "--set", "monitor.agent.enabled=true")
    images = [
        container["image"]
        for each in found
        if each["kind"] in ("Deployment", "StatefulSet", "DaemonSet")
        for container in each["spec"]["template"]["spec"]["containers"]
    ]
    assert len(images) == len(charts) + 1
    assert all(image.endswith(f"@{digest}") for image in images)
    with pytest.raises(helm.HelmError, match="/image/digest"):
        helm.rendered("stromboli", *TRIAL, "--set", "kafka.image.digest=latest")


def test_only_an_impersonating_rest_may_impersonate(real_tools: tools.Tools) -> None:
    for options, expected in (((), False), (("--set", "rest.impersonate=true"), True)):
        objects = helm.rendered("admission", *helm.BROKERS, *OPEN, *options)
        rights = rbac_rights.granted(rbac_rights.bound(objects, "stromboli-admission"))
        assert ("impersonate" in {each.verb for each in rights}) is expected
        pod = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]
        names = {each["name"] for each in pod["containers"][0]["env"]}
        assert ("STROM_ADMISSION_IMPERSONATE" in names) is expected


def test_a_release_of_everything_protects_the_annotations_of_decisions_of_all_controllers(
    real_tools: tools.Tools, whole: list[helm.Object]
) -> None:
    """Without them no pod is created with its node. The right belongs to the controller alone."""
    policy = helm.the_only(whole, "ValidatingAdmissionPolicy", pod_annotations.NAME)
    binding = helm.the_only(whole, "ValidatingAdmissionPolicyBinding", pod_annotations.NAME)
    assert pod_annotations.shortcoming(policy, binding) == ""
    roles = helm.of_kind(whole, "ClusterRole")
    names = [it["metadata"]["name"] for it in roles if pod_annotations.RIGHT in it["rules"]]
    assert names == ["batch:stromboli-controller"]


@pytest.mark.parametrize("by", ["own", "cert-manager"])
def test_the_certificate_has_every_name_by_which_rest_is_reached(
    by: str, real_tools: tools.Tools
) -> None:
    """And still that by which the API server calls the webhooks."""
    objects = helm.rendered("admission", *helm.BROKERS, *OPEN, "--set", f"certificate.by={by}")
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    own = {each["name"]: each.get("value") for each in container["env"]}
    names = (
        own["STROM_ADMISSION_CERTIFICATE_NAMES"].split(",")
        if by == "own"
        else helm.the_only(objects, "Certificate")["spec"]["dnsNames"]
    )
    inside = f"{helm.the_only(objects, 'Service')['metadata']['name']}.batch"
    assert {f"{inside}.svc", inside, "localhost"} <= set(names)


def test_an_open_rest_has_the_rights_that_are_documented_and_no_other(
    real_tools: tools.Tools,
) -> None:
    """Beside those of the certificate, which it shares with the webhooks; its own lease and those
    that system health shows by their names."""
    options = ("--set", "certificate.by=cert-manager")
    objects = helm.rendered("admission", *helm.BROKERS, *OPEN, *options)
    rights = rbac_rights.granted(rbac_rights.bound(objects, "stromboli-admission"))
    leases = {right.name: set[str]() for right in rights if right.name}
    for right in rights:
        if right.name:
            leases[right.name].add(right.verb)
    shown = {"stromboli-default-monitor": {"get"}, "stromboli-default-controller": {"get"}}
    assert leases == {"stromboli-default-admission": {"get", "patch"}, **shown}
    of_any_name = {msgspec.structs.replace(right, name="") for right in rights}
    assert of_any_name == rbac_rights.documented()


def test_rest_without_a_certificate_is_refused_with_the_next_step(real_tools: tools.Tools) -> None:
    options = (*OPEN, "--set", "judgedBy=policies")
    with pytest.raises(helm.HelmError, match="set judgedBy=webhooks or rest"):
        helm.rendered("admission", *helm.BROKERS, *options)


def environment_of(objects: list[helm.Object]) -> dict[str, helm.Object]:
    """Name -> variable of a chart's only container."""
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each for each in container["env"]}


def test_the_history_takes_secrets_from_secrets_and_has_no_kubernetes_access(
    real_tools: tools.Tools,
) -> None:
    objects = helm.rendered("history", *helm.BROKERS, *helm.DATABASE)
    known = environment_of(objects)
    password = known["STROM_HISTORY_DATABASE_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert password == {"name": "db", "key": "password"}
    pod = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {"shared"} == {it["secret"]["secretName"] for it in pod["volumes"] if "secret" in it}
    values = {name: it["value"] for name, it in known.items() if "value" in it}
    own = {name: value for name, value in values.items() if name.startswith("STROM_HISTORY_")}
    given = settings.load(HistorySettings, "history", own)
    assert given.queries_token_file == "/etc/stromboli/queries/token"
    policy = helm.the_only(objects, "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])]
    assert set(ports) == {53, 9093, 6432}
    assert not list(helm.of_kind(objects, "ClusterRole"))


def test_the_history_gets_the_targets_of_notifications_from_a_secret(
    real_tools: tools.Tools,
) -> None:
    named = ("--set", "notifications.secret=targets")
    objects = helm.rendered("history", *helm.BROKERS, *helm.DATABASE, *named)
    file = "/etc/stromboli/notifications/notifications.toml"
    assert environment_of(objects)["STROM_HISTORY_NOTIFICATIONS_FILE"]["value"] == file
    pod = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]
    assert "targets" in {it["secret"]["secretName"] for it in pod["volumes"] if "secret" in it}
    policy = helm.the_only(objects, "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])]
    assert {443, 587} <= set(ports)


@pytest.mark.parametrize("missing", ["database.url=", "queries.secret="])
def test_the_history_needs_a_database_and_a_token(missing: str, real_tools: tools.Tools) -> None:
    with pytest.raises(helm.HelmError, match="is empty: set it to"):
        helm.rendered("history", *helm.BROKERS, *helm.DATABASE, "--set", missing)


def test_admission_reaches_a_history_that_is_named(real_tools: tools.Tools) -> None:
    named = ("--set", "history.url=http://stromboli-history:8485", "--set", "history.secret=shared")
    objects = helm.rendered("admission", *helm.BROKERS, *named)
    known = environment_of(objects)
    assert known["STROM_ADMISSION_HISTORY_URL"]["value"] == "http://stromboli-history:8485"
    file = known["STROM_ADMISSION_HISTORY_TOKEN_FILE"]["value"]
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert file.rpartition("/")[0] in [each["mountPath"] for each in container["volumeMounts"]]
    policy = helm.the_only(objects, "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])]
    assert 8485 in ports
    own = helm.the_only(helm.rendered("history", *helm.BROKERS, *helm.DATABASE), "NetworkPolicy")
    (allowed,) = own["spec"]["ingress"][1]["from"]
    labels = helm.the_only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert allowed["podSelector"]["matchLabels"].items() <= labels.items()
    with pytest.raises(helm.HelmError, match=r"history\.secret is empty"):
        helm.rendered("admission", *helm.BROKERS, *named[:2])


HOSTS = ("--set", "pages.hosts={console.example.com}")
HTTPS = (("--set", "pages.tlsSecret=pages"), ("--set", "pages.behindHttps=true"))


def console_settings(objects: list[helm.Object]) -> ConsoleSettings:
    """The settings that its process would read, which has to accept them."""
    own = {
        name: each["value"]
        for name, each in environment_of(objects).items()
        if name.startswith("STROM_CONSOLE_")
    }
    found = settings.load(ConsoleSettings, "console", own)
    console.check(found)
    return found


def test_the_console_knows_neither_the_log_nor_the_api_server(real_tools: tools.Tools) -> None:
    """Its only rights are the tokens of its users; so it installs without the brokers' values."""
    objects = helm.rendered("console", *helm.REST)
    assert not [name for name in environment_of(objects) if "KAFKA" in name or "LEASE" in name]
    pod = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    policy = helm.the_only(objects, "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])]
    assert set(ports) == {53, 8480}
    assert {"Role", "ClusterRole"}.isdisjoint(each["kind"] for each in objects)


def test_the_pages_are_on_loopback_of_the_pod_unless_hosts_are_named(
    real_tools: tools.Tools,
) -> None:
    """A port-forward reaches them there, and nothing else does."""
    objects = helm.rendered("console", *helm.REST)
    assert console_settings(objects).host == "127.0.0.1"
    assert len(helm.the_only(objects, "NetworkPolicy")["spec"]["ingress"]) == 1


@pytest.mark.parametrize("https", HTTPS)
def test_pages_for_others_are_served_with_https(
    https: tuple[str, ...], real_tools: tools.Tools
) -> None:
    objects = helm.rendered("console", *helm.REST, *HOSTS, *https)
    found = console_settings(objects)
    assert (found.host, found.hosts) == ("0.0.0.0", ("console.example.com",))
    assert bool(found.certificate_file) is not found.behind_https
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    web = next(each for each in container["ports"] if each["name"] == "web")
    assert web["containerPort"] == found.port
    assert found.port in [
        port["port"] for port in helm.the_only(objects, "Service")["spec"]["ports"]
    ]
    rules = helm.the_only(objects, "NetworkPolicy")["spec"]["ingress"]
    assert found.port in [port["port"] for rule in rules for port in rule["ports"]]


OIDC = (
    "--set", "pages.oidc.issuer=https://login.example.com:8443/dex",
    "--set", "pages.oidc.clientId=stromboli",
    "--set", "pages.oidc.secret=stromboli-oidc",
    "--set", "pages.oidc.caSecret=login-ca",
    "--set", "pages.oidc.requiredClaims={groups}",
    "--set", "pages.oidc.port=8443",
)  # fmt: skip


def test_logins_by_openid_connect_have_the_secrets_as_files_and_reach_the_provider(
    real_tools: tools.Tools,
) -> None:
    objects = helm.rendered("console", *helm.REST, *HOSTS, *HTTPS[1], *OIDC)
    found = console_settings(objects)
    assert (found.oidc_issuer, found.oidc_client_id) == (
        "https://login.example.com:8443/dex",
        "stromboli",
    )
    assert found.oidc_required_claims == ("groups",)
    assert "offline_access" in found.oidc_scopes
    (container,) = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    folders = {each["mountPath"] for each in container["volumeMounts"]}
    for file in (found.oidc_client_secret_file, found.oidc_ca_file):
        assert file.rpartition("/")[0] in folders
    policy = helm.the_only(objects, "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])]
    assert set(ports) == {53, 8480, 8443}


def test_of_the_secret_with_the_authority_the_console_gets_one_key(
    real_tools: tools.Tools,
) -> None:
    """That of cert-manager has admission's private key, too."""
    options = ("--set", "server.caSecret=stromboli-admission-certificate")
    objects = helm.rendered("console", *helm.REST, *options)
    (secret,) = [
        each["secret"]
        for each in helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
        if "secret" in each
    ]
    assert secret["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert console_settings(objects).ca_file == "/etc/stromboli/server/ca.crt"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "server.url is empty: set it to the URL of REST"),
        ((*helm.REST, *HOSTS), "so they need https: set pages.tlsSecret, or pages.behindHttps"),
        ((*helm.REST, *HTTPS[0]), "pages.hosts is empty: list the host names"),
        ((*helm.REST, *HOSTS, *HTTPS[0], *HTTPS[1]), "set either tlsSecret"),
        (("--set", "server.url=http://stromboli-admission:8480"), "/server/url"),
        ((*helm.REST, *OIDC[:2]), "pages.oidc.clientId is empty: register the console"),
        ((*helm.REST, "--set", "pages.oidc.issuer=http://login.example.com"), "/issuer"),
    ],
)
def test_a_console_that_would_not_start_is_refused_with_the_next_step(
    options: tuple[str, ...], said: str, real_tools: tools.Tools
) -> None:
    with pytest.raises(helm.HelmError) as refused:
        helm.rendered("console", *options)
    assert said in str(refused.value)
