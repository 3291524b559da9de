"""The files in deploy/ are valid, and agree with each other and with the command."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from pseudoquery.building.location import is_address
from pseudoquery.cli import cli
from pseudoquery.cli.serve import SHUTDOWN_SECONDS, serve
from pseudoquery.milvus.connection import TOKEN
from pseudoquery.service.exchange import OPEN
from pseudoquery.version import VERSION

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.34"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
OBJECTS: list[dict[str, Any]] = [
    one for path in sorted(DEPLOY.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())
]
FOREIGN = {"RayJob", "Milvus"}
"""Kinds that operators bring; Kubernetes has no schemas of them."""
RESOURCES = {"replicas", "resources"}
KNOWN: dict[str, set[str]] = {
    "RayJob.spec": {
        *("backoffLimit", "entrypoint", "rayClusterSpec"),
        *("shutdownAfterJobFinishes", "ttlSecondsAfterFinished"),
    },
    "RayJob.spec.rayClusterSpec": {"rayVersion", "headGroupSpec", "workerGroupSpecs"},
    "RayJob.spec.rayClusterSpec.headGroupSpec": {"rayStartParams", "template"},
    "Milvus.spec": {"mode", "components", "config", "dependencies"},
    "Milvus.spec.components": {
        *("image", "enableRollingUpdate", "proxy", "mixCoord"),
        *("streamingNode", "queryNode", "dataNode"),
    },
    "Milvus.spec.components.proxy": RESOURCES,
    "Milvus.spec.components.mixCoord": RESOURCES,
    "Milvus.spec.components.streamingNode": RESOURCES,
    "Milvus.spec.components.queryNode": RESOURCES,
    "Milvus.spec.components.dataNode": RESOURCES,
    "Milvus.spec.dependencies": {"msgStreamType", "etcd", "storage"},
    "Milvus.spec.dependencies.etcd": {"inCluster"},
    "Milvus.spec.dependencies.etcd.inCluster": {"deletionPolicy", "values"},
    "Milvus.spec.dependencies.storage": {"external", "type", "endpoint", "secretRef"},
}
"""Fields that the operators know, by their sources: those that are used here."""


def find(kind: str) -> dict[str, Any]:
    return next(one for one in OBJECTS if one["kind"] == kind)


def pods() -> dict[str, dict[str, Any]]:
    """All pods that would run, each with the name of the thing that makes it."""
    cluster = find("RayJob")["spec"]["rayClusterSpec"]
    return {
        "Deployment": find("Deployment")["spec"]["template"]["spec"],
        "head": cluster["headGroupSpec"]["template"]["spec"],
        **{one["groupName"]: one["template"]["spec"] for one in cluster["workerGroupSpecs"]},
    }


def containers() -> list[dict[str, Any]]:
    return [one for pod in pods().values() for one in pod["containers"]]


def command_lines() -> list[list[str]]:
    """What the image's `pseudoquery` is called with."""
    entrypoint = shlex.split(find("RayJob")["spec"]["entrypoint"])
    assert entrypoint[0] == "pseudoquery"
    return [entrypoint[1:], *(one["args"] for one in containers() if "args" in one)]


def parsed(arguments: list[str]) -> click.Context:
    """Read a command line as the command does, without carrying it out."""
    name, command, rest = cli.resolve_command(click.Context(cli), list(arguments))
    assert command
    return command.make_context(name, rest)


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: one["kind"])
def test_what_is_kubernetes_own_fits_its_schemas(one: dict[str, Any]) -> None:
    assert one["metadata"]["namespace"] == "pseudoquery"
    if one["kind"] not in FOREIGN:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


@pytest.mark.parametrize(("name", "pod"), pods().items(), ids=lambda one: str(one)[:10])
def test_pods_fit_the_schema_wherever_they_stand(name: str, pod: dict[str, Any]) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}, "spec": pod}
    kubernetes_validate.validate(whole, KUBERNETES, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    wrong = {**find("Service"), "spec": {"selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize("place", KNOWN)
def test_other_kinds_have_only_fields_that_their_operators_know(place: str) -> None:
    kind, *path = place.split(".")
    found: Any = find(kind)
    for step in path:
        found = found[step]
    assert found.keys() <= KNOWN[place]


@pytest.mark.parametrize("line", command_lines(), ids=lambda line: line[0])
def test_every_command_line_is_understood(line: list[str]) -> None:
    parsed(line)


def test_addresses_lead_to_the_milvus_that_is_made() -> None:
    server = f"http://{find('Milvus')['metadata']['name']}-milvus:19530/"
    addresses = [one for line in command_lines() for one in line if is_address(one)]
    assert len(addresses) == 2
    assert len(set(addresses)) == 1
    assert addresses[0].startswith(server)


def test_what_is_indexed_is_what_is_served() -> None:
    contexts = {line[0]: parsed(line) for line in command_lines()}
    assert contexts["index"].params["folder"] == contexts["serve"].params["folder"]


def test_ports_and_probes_are_those_of_the_service() -> None:
    (container,) = pods()["Deployment"]["containers"]
    options = parsed(container["args"]).params
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"http": options["port"]}
    assert options["host"] == "0.0.0.0"
    assert f"EXPOSE {options['port']}" in DOCKERFILE
    assert {one["targetPort"] for one in find("Service")["spec"]["ports"]} <= ports.keys()
    for name, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        asked = container[f"{name}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "http"}
        assert path in OPEN  # without a token
    assert pods()["Deployment"]["terminationGracePeriodSeconds"] > SHUTDOWN_SECONDS


def test_labels_and_selectors_agree() -> None:
    labels = find("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert find("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert find("Service")["spec"]["selector"] == labels
    assert find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels


def test_tokens_come_from_secrets_under_names_that_are_read() -> None:
    readme = (DEPLOY / "README.md").read_text()
    read = {option.envvar for option in serve.params if option.envvar} | {TOKEN}
    (container,) = pods()["Deployment"]["containers"]
    given = {one["name"] for one in container["env"] if "valueFrom" in one}
    assert given == read
    secrets = [
        one["valueFrom"]["secretKeyRef"]
        for container in containers()
        for one in container.get("env", [])
        if "TOKEN" in one["name"]
    ]
    assert len(secrets) == 4
    for secret in secrets:
        assert secret["name"] in readme
        assert f"--from-file={secret['key']}" in readme
    assert not [one for one in OBJECTS if one["kind"] == "Secret"]


def test_volumes_are_there_and_hold_what_is_asked_for() -> None:
    claims = {one["metadata"]["name"] for one in OBJECTS if one["kind"] == "PersistentVolumeClaim"}
    used = set()
    for pod in pods().values():
        volumes = {one["name"]: one for one in pod["volumes"]}
        for container in pod["containers"]:
            mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
            assert mounted.keys() == volumes.keys()
            assert mounted["scratch"] == "/tmp"
            named = {f"/{one.split('/')[1]}" for one in container.get("args", []) if one[0] == "/"}
            assert named <= set(mounted.values())
        claimed = [
            one.get("persistentVolumeClaim", {}).get("claimName") for one in volumes.values()
        ]
        used |= {one for one in claimed if one}
    assert used == claims
    index = parsed(command_lines()[0]).params  # by the head
    there = {one["mountPath"] for one in pods()["head"]["containers"][0]["volumeMounts"]}
    assert str(Path(index["source"]).parent) in there


def test_nothing_runs_as_root_or_without_limits() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert user
    for pod in pods().values():
        own = pod["securityContext"]
        assert own["runAsNonRoot"]
        assert (own["runAsUser"], own["runAsGroup"]) == tuple(map(int, user.groups()))
        assert not pod["automountServiceAccountToken"]
    for container in containers():
        own = container["securityContext"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["allowPrivilegeEscalation"] is False
        assert own.get("readOnlyRootFilesystem", container["name"].startswith("ray-"))
        for kind in ("requests", "limits"):
            assert container["resources"][kind].keys() == {"cpu", "memory"}


def test_images_have_versions_and_ours_has_the_packages() -> None:
    used = {container["image"] for container in containers()}
    assert used == {f"registry.example.org/pseudoquery:{VERSION}"}
    foreign = [find("Milvus")["spec"]["components"]["image"]]
    foreign += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    for image in foreign:
        assert re.search(r":v?\d+\.\d+\.\d+(-[\w.-]+)?$", image), image
    for text in (DOCKERFILE, (DEPLOY / "README.md").read_text()):
        assert set(re.findall(r"pseudoquery:(\d[\w.]*)", text)) == {VERSION}
    # The client and the server of Milvus are of one generation.
    assert foreign[0].partition(":v")[2].partition(".")[0] == version("pymilvus").partition(".")[0]


def test_ray_is_one_version_everywhere() -> None:
    pinned = re.search(r"ray\[default\]==([\d.]+)", DOCKERFILE)
    assert pinned
    assert find("RayJob")["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]


def test_the_image_is_made_of_what_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'\.\[([\w,-]+)\]'", DOCKERFILE)
    assert extras
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    assert {"milvus", "serve"} <= set(extras[1].split(","))
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text()
    copied = re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)
    for source in " ".join(copied).split():
        assert (ROOT / source).exists()
        assert f"!{source}\n" in allowed
    for command in re.findall(r"pip install .*", DOCKERFILE):
        assert "--constraint constraints.txt" in command
    assert 'ENTRYPOINT ["pseudoquery"]' in DOCKERFILE
    base = re.search(r"^FROM python:(\d+)\.(\d+)", DOCKERFILE, re.MULTILINE)
    assert base
    assert tuple(map(int, base.groups())) >= (3, 11)
