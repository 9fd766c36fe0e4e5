"""What nodes are asked before anything is deployed, and what is said of those that lack something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.family import DRAFT_DIR, TARGET_DIR
from core.settings import parse_settings
from serve_app.config import ServiceConfig, load_config
from serve_app.deployments.deploy import preflight
from serve_app.deployments.deploy.nodes import Node
from serve_app.deployments.deploy.preflight import Look, check, look, missing, parts_of, unshared
from serve_app.deployments.models.served_models import ServedModels, with_bundle

HEAD = Node("1", "10.0.0.1", {"CPU": 4.0})
VERIFIER = Node("2", "10.0.0.2", {"CPU": 8.0, "GPU": 1.0}, labels={"role": "verifier"})
OWN = look([], []).version


def service(**fields: Any) -> ServiceConfig:
    content = {"name": "m", "target": {"model": str(TARGET_DIR)}, "draft": {"model": str(DRAFT_DIR)}}
    return parse_settings(content | fields, ServiceConfig, "configuration")


def parts(served: ServedModels) -> dict[str, set[str]]:
    """The paths that each part reads."""
    return {part.name: {need.path for need in part.needs} for part in parts_of(served)}


def test_every_part_reads_its_models_and_the_ingress_the_keys(tmp_path: Path) -> None:
    served = ServedModels(service(ingress={"keys": {"file": str(tmp_path / "keys")}}))
    target = str(TARGET_DIR)
    assert parts(served) == {
        "the target": {target},
        "the ingress": {target, str(tmp_path / "keys")},
        "the draft pool general": {target, str(DRAFT_DIR)},
    }


def test_the_parts_of_a_bundle_read_theirs_and_models_that_come_with_the_package_are_everywhere() -> None:
    served = with_bundle(load_config("family"))
    found = parts(served)
    assert found.pop("the router") == {served.router}
    assert [Path(path).name for path in found.pop("the rollout")] == ["bundle"]
    assert not found.pop("the target") | found.pop("the ingress")
    assert found.keys() == {f"the draft pool {task}" for task in served.drafts}
    assert all(str(served.drafts[task]) in found[f"the draft pool {task}"] for task in served.drafts)


def test_models_of_the_hub_are_no_files() -> None:
    served = ServedModels(service(target={"model": "org/target"}, draft={"model": "org/draft"}))
    assert not any(parts(served).values())


def test_a_part_is_asked_for_where_it_may_run() -> None:
    wants = service(
        target={"model": "t", "actors": {"num_gpus": 1, "label_selector": {"role": "verifier"}}}
    ).target.actors
    assert [node.may_run(wants) for node in (HEAD, VERIFIER)] == [False, True]
    assert HEAD.may_run(service().draft.actors)


def test_a_node_says_why_it_cannot_read_what_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.safetensors").symlink_to(tmp_path / "nothing")
    keys = tmp_path / "keys"
    keys.write_text("alice")
    paths = [str(tmp_path / name) for name in ("model", "missing", "dangling", "broken", "keys")]
    found = look([*paths, "relative"], [str(keys), str(tmp_path / "missing")])
    gone = "no such file or directory"
    assert {Path(path).name: fault for path, fault in found.faults.items() if path != "relative"} == {
        "missing": gone,
        "dangling": gone,
        "broken": gone,
    }
    assert "absolute" in found.faults["relative"]
    assert found.digests.keys() == {str(keys)}


def test_a_line_names_the_node_the_path_who_reads_it_and_what_to_do() -> None:
    served = ServedModels(
        service(target={"model": str(TARGET_DIR), "actors": {"label_selector": {"role": "verifier"}}})
    )
    lacking = Look(OWN, {str(TARGET_DIR): "no such file or directory"}, {})
    lines = list(missing(parts_of(served), {HEAD: Look(OWN, {}, {}), VERIFIER: lacking}))
    readers = "the target and the ingress and the draft pool general"
    what = f"- node 10.0.0.2: {TARGET_DIR} (target.model, for {readers}): no such file or directory"
    assert lines == [f"{what}; put it on storage that all nodes share, or copy it there"]
    assert "taskspec 0.0" in next(missing(parts_of(served), {HEAD: Look("0.0", {}, {})}))


def test_directories_of_traces_are_one_if_every_node_sees_the_marks_of_all(tmp_path: Path) -> None:
    assert not list(unshared(tmp_path, {HEAD: {"a", "b"}, VERIFIER: {"a", "b"}}))
    [line] = unshared(tmp_path, {HEAD: {"a"}, VERIFIER: {"b"}})
    assert "10.0.0.1, 10.0.0.2" in line
    assert "share" in line


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes, which are this process."""

    def ask(calls: dict[Node, Any]) -> dict[Node, Any]:
        return {node: function(*arguments) for node, (function, *arguments) in calls.items()}

    monkeypatch.setattr(preflight, "alive", lambda: [HEAD, VERIFIER])
    monkeypatch.setattr(preflight, "_ask", ask)


@pytest.mark.usefixtures("nodes")
def test_a_service_passes_whose_nodes_have_everything_and_leaves_nothing_with_the_traces(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    check(ServedModels(service(traces={"directory": str(traces)})))
    assert list(traces.iterdir()) == []


@pytest.mark.usefixtures("nodes")
def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    served = ServedModels(service(target={"model": str(gone)}), drafts={"general": str(tmp_path / "adapter")})
    with pytest.raises(ConfigError) as refused:
        check(served)
    lines = str(refused.value).splitlines()
    assert len([line for line in lines if str(gone) in line]) == 2
    assert len([line for line in lines if "adapter" in line]) == 2


@pytest.mark.usefixtures("nodes")
def test_traces_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"traces\.directory\): (not a directory|file exists)"):
        check(ServedModels(service(traces={"directory": str(tmp_path / "file" / "traces")})))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.usefixtures("nodes")
def test_a_part_that_no_node_is_labelled_for_is_told_with_what_to_write() -> None:
    actors = {"label_selector": {"role": "draft"}}
    with pytest.raises(ConfigError, match=r"the draft pool general: role=draft; .*`ray start --labels role=draft`"):
        check(ServedModels(service(draft={"model": "org/draft", "actors": actors})))
    idle = actors | {"autoscaling": {"min_replicas": 0, "max_replicas": 2}}
    check(ServedModels(service(draft={"model": "org/draft", "actors": idle})))
