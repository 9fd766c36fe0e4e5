"""Configuration files: the shipped ones load, every mistake is told with what to write instead."""

from __future__ import annotations

import copy
import hashlib
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import serve

from core.draft_key import GENERAL, DraftKey
from core.errors import ConfigError
from core.model.cpu.openmp import TEAM
from core.model_names import locate
from core.settings import parse_settings
from serve_app.application_names import draft_key, pool_application
from serve_app.applications import pool, service
from serve_app.config import ServiceConfig, load_config, shipped_configs
from serve_app.deployments.deploy.applications import core_application, targets
from serve_app.deployments.deploy.bundle_applications import ENVIRONMENT
from serve_app.deployments.models.served_models import ServedModels
from serve_app.http.owners import KeyHolder

MINIMAL = {
    "name": "m",
    "target": {"model": "family:target"},
    "draft": {"model": "family:draft"},
}


def parse_config(content: object) -> ServiceConfig:
    return parse_settings(content, ServiceConfig, "configuration")


def changed(path: str, value: object) -> dict[str, object]:
    """The minimal configuration with the dotted `path` set."""
    content = yaml.safe_load(yaml.safe_dump(MINIMAL))
    section = content
    *parents, last = path.split(".")
    for parent in parents:
        section = section.setdefault(parent, {})
    section[last] = value
    return content


@pytest.mark.parametrize("name", shipped_configs())
def test_shipped_configurations_build_their_applications(name: str) -> None:
    config = load_config(name)
    served = ServedModels(config, drafts={"general": None, "math": "/parts/0123456789abcdef"}, router="/parts/feed")
    rollout = [] if config.bundle is None else ["taskspec-rollout"]
    names = ["draft-general", "draft-math@0123456789ab", "router@feed", "taskspec-draft-check", "taskspec", *rollout]
    assert [target.name for target in targets(served)] == names
    assert served.applications == set(names[:3])


@pytest.mark.parametrize("path", ["target.max_sessions", "target.max_queued", "draft.max_sessions"])
def test_the_smallest_limits_build_applications_too(path: str) -> None:
    assert targets(ServedModels(parse_config(changed(path, 1))))


@pytest.mark.parametrize(("threads", "told"), [(1, {}), (2, TEAM), (None, TEAM)])
def test_a_verifier_of_several_threads_is_told_how_they_wait(threads: int, told: dict[str, str]) -> None:
    built = core_application(ServedModels(parse_config(changed("target.threads", threads))))
    verifier = built._bound_deployment.init_args[1]._bound_deployment
    assert verifier.name == "TargetVerifier"
    assert verifier.ray_actor_options["runtime_env"]["env_vars"] == ENVIRONMENT | told


def test_the_door_of_the_ingress_is_what_refuses_not_serve() -> None:
    for sessions, ingress, expected in ((32, {}, 256), (256, {}, 640), (256, {"max_ongoing_requests": 7}, 7)):
        content = changed("target.max_sessions", sessions) | {"ingress": ingress}
        built = core_application(ServedModels(parse_config(content)))._bound_deployment
        assert built.max_ongoing_requests == expected
        verifier = built.init_args[1]._bound_deployment
        assert (verifier.max_ongoing_requests, verifier.max_queued_requests) == (sessions, -1)


def test_of_keys_in_the_environment_only_hashes_go_to_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_config(changed("ingress.keys", {"env": "TASKSPEC_TEST_KEYS"}))
    with pytest.raises(ConfigError, match="TASKSPEC_TEST_KEYS has no key"):
        core_application(ServedModels(config))
    monkeypatch.setenv("TASKSPEC_TEST_KEYS", "tsk-secret")
    arguments = core_application(ServedModels(config))._bound_deployment.init_args
    assert arguments[-1] == {hashlib.sha256(b"tsk-secret").digest(): KeyHolder("env-1")}
    assert "tsk-secret" not in repr(arguments)


def test_the_doors_of_serve_run_build_ingress_and_pools() -> None:
    assert service({"config": "family"})._bound_deployment.name == "SpeculativeIngress"
    assert pool({"config": "family", "task": "general"})._bound_deployment.name == "DraftPool"
    with pytest.raises(ConfigError):
        service({"config": "famly"})
    with pytest.raises(ConfigError, match="no task 'maths' is served; write one of general"):
        pool({"config": "family", "task": "maths"})


def test_the_documented_command_for_one_pool_opens_no_path_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "serve_app" / "operating.md").read_text()
    assert "--route-prefix" not in page
    [command] = re.findall(r"python -c '([^']*pool[^']*)'", page)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(MINIMAL))
    monkeypatch.chdir(tmp_path)
    deployed: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(serve, "run", lambda built, **options: deployed.append((built, options)))
    exec(textwrap.dedent(command).replace('"math"', '"general"'))  # no bundle, no other task
    [(built, options)] = deployed
    assert built._bound_deployment.name == "DraftPool"
    assert options == {"name": "draft-math@1a2b3c4d5e6f", "route_prefix": None}


def test_the_real_pair_gives_whole_gpus_to_verifiers_and_shares_to_drafts() -> None:
    config = load_config("llama2-13b")
    assert (config.target.model, config.draft.model) == ("meta-llama/Llama-2-13b-chat-hf", "JackFram/llama-68m")
    assert config.target.actors.num_gpus == 1
    for task in ("general", "whatever-training-calls-it"):
        actors = config.pool_actors(task)
        assert 0 < actors.num_gpus < 1
        assert actors.autoscaling


def test_on_a_machine_that_stands_for_all_kinds_of_node_no_part_asks_for_a_kind() -> None:
    config = load_config("llama2-13b")
    assert config.target.actors.label_selector == {"role": "verifier"}
    anywhere = config.anywhere()
    parts: list[Any] = [anywhere.target, anywhere.ingress, anywhere.router, anywhere.draft, *anywhere.pools.values()]
    assert not any(part.actors.label_selector for part in parts)
    assert anywhere.target.actors.autoscaling == config.target.actors.autoscaling


@pytest.mark.parametrize(("key", "value"), [("role", "in("), ("role", "a b"), ("a b", "c")])
def test_a_selector_that_ray_would_refuse_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="label_selector"):
        parse_config(changed("target.actors.label_selector", {key: value}))


def test_a_pool_that_is_not_named_is_scaled_as_the_draft_says() -> None:
    content = changed("draft.actors", {"replicas": 2}) | {"pools": {"math": {"actors": {"replicas": 3}}}}
    config = parse_config(content)
    assert [config.pool_actors(task).replicas for task in ("general", "math", "python")] == [2, 3, 2]


AWKWARD = [
    "多谢-星期",
    "工资-小时",
    "naïve",
    "na-ve",
    "a b",
    "a-b",
    "a/b",
    "a#b",
    "Math",
    "math",
    "x" * 99,
    "x" * 98,
    "-",
]


def test_pools_have_plain_names_of_their_own_whatever_the_tasks_are_called() -> None:
    names = [pool_application(draft_key(task)) for task in AWKWARD]
    assert len(set(names)) == len(AWKWARD)
    assert [name for name in names if not re.fullmatch(r"draft-[A-Za-z0-9_-]{1,60}", name)] == []
    assert pool_application(draft_key("protons-moles")) == "draft-protons-moles"


@pytest.mark.parametrize(
    ("section", "switched_on"),
    [
        ({}, ["grammar", "own_text", "answers", "prediction"]),
        ({"own_text": False, "remembered_tokens": 0}, ["grammar", "answers", "prediction"]),
        ({"own_text": True, "grammar": False, "answers": False}, ["own_text", "prediction"]),
    ],
)
def test_a_source_of_proposals_is_switched_by_its_name(section: dict[str, Any], switched_on: list[str]) -> None:
    assert list(parse_config(changed("lookup", section)).lookup.sources) == switched_on


def test_earlier_answers_are_remembered_as_configured() -> None:
    section = {"remembered_tokens": 5, "without_key": True, "answers": True}
    sources = parse_config(changed("lookup", section)).lookup.sources
    assert sources["answers"] == {"max_tokens": 5, "without_owner": True}


@pytest.mark.parametrize("task", AWKWARD)
def test_the_key_of_a_draft_has_one_task_whatever_the_adapter(task: str) -> None:
    old, new = draft_key(task, "/bundles/1a2b"), draft_key(task, "/bundles/3c4d")
    assert old != new
    assert {old.task, new.task} == {draft_key(task).task}
    assert [DraftKey.parse(str(key)) for key in (old, new)] == [old, new]
    assert str(draft_key(GENERAL)) == GENERAL


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("target.modle", "x", "target.modle: unknown key; did you mean `model`"),
        ("poools", {}, "poools: unknown key; did you mean `pools`"),
        ("lookup.ngram", True, "lookup: no source of proposals is called 'ngram'; there are grammar, own_text"),
        ("lookup.remembered", 3, "other keys here are remembered_tokens and without_key"),
        ("lookup.answers", {"size": 3}, "lookup: a source of proposals takes no such arguments"),
        ("aliases", "gpt-4o", "aliases: write a list of names, or `any`"),
        ("aliases", None, "aliases: write a list of names, or `any`"),
        ("aliases", [3], "aliases.names.0: Input should be a valid string"),
        ("aliases", [""], "aliases.names.0: String should have at least 1 character"),
        ("aliases", ["x" * 257], "aliases.names.0: String should have at most 256 characters"),
        ("aliases", ["a", "a"], "aliases: `a` is there twice"),
        ("aliases", ["a", "m"], "aliases: `m` is there twice; write further names than `name`, each once"),
        ("pools.math", {"actor": {}}, "pools.math.actor: unknown key; did you mean `actors`"),
        ("pools.general.actors", {"num_gpu": 1}, "did you mean `num_gpus`"),
        ("pools", {"math": {}}, "pools.math.actors: Field required"),
        ("bundles", "somewhere", "bundles: unknown key; did you mean `bundle`"),
        ("target.dtype", "float16", "target.dtype: Input should be 'float32' or 'bfloat16'"),
        ("target.cache_token", 4096, "target.cache_token: unknown key; did you mean `cache_tokens`"),
        ("target.decoder", "fast", "decoder: there is none called 'fast'; write one of auto, compiled, torch, vllm"),
        ("target.max_queued", 0, "target.max_queued: Input should be greater than or equal to 1"),
        ("draft.num_speculative_tokens", 0, "draft.num_speculative_tokens: Input should be greater than or equal to 1"),
        ("draft.num_speculative_tokens", 17, "draft.num_speculative_tokens: Input should be less than or equal to 16"),
        ("traces.diretory", "x", "traces.diretory: unknown key; did you mean `directory`"),
        ("traces", {"flush_seconds": 5}, "traces.directory: Field required"),
        ("traces", {"directory": "x", "max_bytes": 9}, "traces.max_bytes: Input should be greater than or equal to"),
        (
            "traces",
            {"directory": "x", "redact": "no_such_module:function"},
            "traces.redact: cannot import `no_such_module:function` (ModuleNotFoundError: No module named",
        ),
        ("traces", {"directory": "x", "redact": "json:dumbs"}, "traces.redact: cannot import `json:dumbs`"),
        ("ingress.keys", {}, "ingress.keys: write `file`, `env` or both"),
        ("ingress.keys", {"flie": "keys"}, "ingress.keys.flie: unknown key; did you mean `file`?"),
        ("ingress.limits.concurrency", 0, "greater than or equal to 1"),
        ("ingress.cors.origins", [], "at least 1 item"),
        (
            "ingress.cors.origins",
            ["https://a.example/"],
            "`https://a.example/` is no origin; write scheme and host without a path",
        ),
        ("traces", {"directory": "x", "redact": "sys:path"}, "traces.redact: `sys:path` is not a function"),
        (
            "traces",
            {"directory": "/proc", "in_memory": True},
            "traces: directory: /proc is on a file system of type proc, and in_memory needs one that is memory",
        ),
        (
            "traces",
            {"directory": "x", "per_key": 9},
            "traces: per_key is for answers kept in memory: write `in_memory: true`",
        ),
        (
            "traces",
            {"directory": "/dev/shm/x", "in_memory": True, "flush_records": 9},
            "traces: flush_records: with in_memory files are written by flush_seconds alone; leave it out",
        ),
        (
            "target.actors.autoscaling",
            {"max_replica": 2},
            "target.actors.autoscaling: unknown key `max_replica`; the nearest known one is `max_replicas`",
        ),
        (
            "pools.math",
            {"actors": {"autoscaling": {"max_replicas": -1}}},
            "pools.math.actors.autoscaling: max_replicas: Input should be greater than 0",
        ),
        (
            "router.actors.autoscaling",
            {"min_replicas": 3, "max_replicas": 2},
            "router.actors.autoscaling: Value error, max_replicas (2) must be greater than or equal to min_replicas",
        ),
    ],
)
def test_mistakes_are_told_with_what_to_write(path: str, value: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(changed(path, value))
    assert told in str(caught.value)


def test_a_service_has_no_aliases_unless_they_are_written_down() -> None:
    assert parse_config(MINIMAL).aliases == []
    for aliases in (["claude-sonnet-4-5", "gpt-4o"], "any", ["any"]):
        assert parse_config(changed("aliases", aliases)).aliases == aliases


def test_traces_are_kept_only_if_the_configuration_says_where() -> None:
    assert parse_config(MINIMAL).traces is None
    traces = parse_config(changed("traces", {"directory": "answers", "redact": "copy:copy"})).traces
    assert traces is not None
    assert traces.directory == Path("answers").absolute()
    assert traces.redaction is copy.copy


def test_traces_may_be_kept_in_memory_where_there_is_some_and_are_on_disk_by_default() -> None:
    kept = parse_config(changed("traces", {"directory": "/dev/shm/x", "in_memory": True, "per_key": 9})).traces
    assert kept is not None
    assert (kept.in_memory, kept.per_key) == (True, 9)
    usual = parse_config(changed("traces", {"directory": "/dev/shm/x"})).traces
    assert usual is not None
    assert not usual.in_memory


def test_a_file_that_is_not_there_or_not_yaml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one of \['family', 'llama2-13b', 'smollm2'\]"):
        load_config("famly")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(broken)


def test_an_unknown_member_of_the_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="family:target"):
        locate("family:verifier")
    assert locate("some/hub-id") == "some/hub-id"
