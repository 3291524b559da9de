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
from pseudoquery.cli.serve import serve
from pseudoquery.milvus.connection import TOKEN
from pseudoquery.service.addresses import Addresses
from pseudoquery.service.server import SHUTDOWN_SECONDS
from pseudoquery.service.status_routes import public_router
from pseudoquery.version import VERSION

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.34"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
LOCK = (ROOT / "requirements" / "lock.txt").read_text()
OBJECTS: list[dict[str, Any]] = [
    document
    for path in sorted(DEPLOY.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
FOREIGN = {"RayJob", "Milvus"}
"""Kinds that operators define; Kubernetes has no schemas for them."""
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
"""The fields that the files use; each is in the sources of its operator."""


def find(kind: str) -> dict[str, Any]:
    return next(document for document in OBJECTS if document["kind"] == kind)


def pods() -> dict[str, dict[str, Any]]:
    """Return all pods by the name of what creates them."""
    cluster = find("RayJob")["spec"]["rayClusterSpec"]
    return {
        "Deployment": find("Deployment")["spec"]["template"]["spec"],
        "head": cluster["headGroupSpec"]["template"]["spec"],
        **{group["groupName"]: group["template"]["spec"] for group in cluster["workerGroupSpecs"]},
    }


def containers() -> list[dict[str, Any]]:
    return [container for pod in pods().values() for container in pod["containers"]]


def command_lines() -> list[list[str]]:
    """Return the arguments of each `pseudoquery` that a pod runs."""
    entrypoint = shlex.split(find("RayJob")["spec"]["entrypoint"])
    assert entrypoint[0] == "pseudoquery"
    arguments = [container["args"] for container in containers() if "args" in container]
    return [entrypoint[1:], *arguments]


def parse(arguments: list[str]) -> click.Context:
    """Parse a command line as the command does, without running it."""
    name, command, rest = cli.resolve_command(click.Context(cli), list(arguments))
    assert command
    return command.make_context(name, rest)


@pytest.mark.parametrize("document", OBJECTS, ids=lambda document: document["kind"])
def test_objects_of_kubernetes_fit_its_schemas(document: dict[str, Any]) -> None:
    assert document["metadata"]["namespace"] == "pseudoquery"
    if document["kind"] not in FOREIGN:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize(("name", "pod"), pods().items(), ids=lambda value: str(value)[:10])
def test_pods_fit_the_schema_wherever_they_stand(name: str, pod: dict[str, Any]) -> None:
    complete = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}, "spec": pod}
    kubernetes_validate.validate(complete, KUBERNETES, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    wrong = {**find("Service"), "spec": {"selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize("path", KNOWN)
def test_other_kinds_have_only_fields_that_their_operators_know(path: str) -> None:
    kind, *keys = path.split(".")
    value: Any = find(kind)
    for key in keys:
        value = value[key]
    assert value.keys() <= KNOWN[path]


@pytest.mark.parametrize("line", command_lines(), ids=lambda line: line[0])
def test_every_command_line_is_understood(line: list[str]) -> None:
    parse(line)


def test_addresses_lead_to_the_milvus_that_is_made() -> None:
    server = f"http://{find('Milvus')['metadata']['name']}-milvus:19530/"
    addresses = [word for line in command_lines() for word in line if is_address(word)]
    assert len(addresses) == 2
    assert len(set(addresses)) == 1
    assert addresses[0].startswith(server)


def test_what_is_indexed_is_what_is_served() -> None:
    contexts = {line[0]: parse(line) for line in command_lines()}
    assert contexts["index"].params["location"] == contexts["serve"].params["location"]


def test_ports_and_probes_are_those_of_the_service() -> None:
    (container,) = pods()["Deployment"]["containers"]
    options = parse(container["args"]).params
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": options["port"]}
    assert options["host"] == "0.0.0.0"
    assert f"EXPOSE {options['port']}" in DOCKERFILE
    assert {port["targetPort"] for port in find("Service")["spec"]["ports"]} <= ports.keys()
    for name, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        request = container[f"{name}Probe"]["httpGet"]
        assert request == {"path": path, "port": "http"}
        assert Addresses(public_router.routes).find("GET", path).is_public
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
    given = {variable["name"] for variable in container["env"] if "valueFrom" in variable}
    assert given == read
    secrets = [
        variable["valueFrom"]["secretKeyRef"]
        for container in containers()
        for variable in container.get("env", [])
        if "TOKEN" in variable["name"]
    ]
    assert len(secrets) == 4
    for secret in secrets:
        assert secret["name"] in readme
        assert f"--from-file={secret['key']}" in readme
    assert "Secret" not in {document["kind"] for document in OBJECTS}


def test_volumes_are_there_and_hold_what_is_asked_for() -> None:
    claims = {
        document["metadata"]["name"]
        for document in OBJECTS
        if document["kind"] == "PersistentVolumeClaim"
    }
    used = set()
    for pod in pods().values():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts.keys() == volumes.keys()
            assert mounts["scratch"] == "/tmp"
            paths = [word for word in container.get("args", []) if word[0] == "/"]
            assert {f"/{path.split('/')[1]}" for path in paths} <= set(mounts.values())
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                used.add(volume["persistentVolumeClaim"]["claimName"])
    assert used == claims
    index = parse(command_lines()[0]).params  # which the head runs
    mounts = pods()["head"]["containers"][0]["volumeMounts"]
    assert str(Path(index["source"]).parent) in {mount["mountPath"] for mount in mounts}


def test_nothing_runs_as_root_or_without_limits() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert user
    for pod in pods().values():
        context = pod["securityContext"]
        assert context["runAsNonRoot"]
        assert (context["runAsUser"], context["runAsGroup"]) == tuple(map(int, user.groups()))
        assert not pod["automountServiceAccountToken"]
    for container in containers():
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert context.get("readOnlyRootFilesystem", container["name"].startswith("ray-"))
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
    locked = re.search(r"^ray==([\d.]+)$", LOCK, re.MULTILINE)
    assert locked
    assert find("RayJob")["spec"]["rayClusterSpec"]["rayVersion"] == locked[1]
    assert re.findall(r"ray\[default\]\S*", DOCKERFILE)[-1] == "ray[default]'", "as the lock has it"


def test_the_image_is_made_of_files_that_exist() -> None:
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
    commands = re.findall(r"^RUN pip install .*", DOCKERFILE, re.MULTILINE)
    assert len(commands) == 2
    assert all("--constraint requirements/lock.txt" in command for command in commands)
    assert 'ENTRYPOINT ["pseudoquery"]' in DOCKERFILE
    base = re.search(r"^FROM python:(\d+\.\d+)", DOCKERFILE, re.MULTILINE)
    locked = re.search(r"for Python (\d+\.\d+)", LOCK)
    assert base
    assert locked
    assert base[1] == locked[1], "the lock is made for one version of Python"
