"""The dashboard's rows, panels and queries, in the words of Prometheus.

`$job`, `$task` and `$version` are chosen on the dashboard, and Grafana sets `$__rate_interval`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from serve_app.application_names import CORE

Unit = Literal["short", "percentunit", "s", "reqps", "suffix: tokens/s", "suffix:x"]  # Grafana's
Kind = Literal["lines", "stacked", "number", "states"]


class Query(NamedTuple):
    """PromQL, and the name of each of its series, in which `{{label}}` stands for a label's value."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A few queries of one unit. `limit` is a line to hold them to."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    limit: float | None = None


SERVICE = 'job=~"$job"'
BY_DRAFT = f'{SERVICE},task=~"$task",version=~"$version"'
OF_DRAFTS = f'{BY_DRAFT},source="draft"'
UNDER_VLLM_NAMES = f'{SERVICE},application="{CORE}"'  # another engine on the nodes may have them, too


def total(metric: str, by: str = "", where: str = SERVICE, of: str = "sum") -> str:
    """A gauge, added up over what is not in `by`, or its `of` another function."""
    return f"{of} by ({by}) ({metric}{{{where}}})" if by else f"{of}({metric}{{{where}}})"


def rate(counter: str, by: str = "", where: str = SERVICE) -> str:
    """The rate of a counter, a second."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (rate({counter}_total{{{where}}}[$__rate_interval]))"


def share(part: str, whole: str) -> str:
    """One rate divided by another: 0 if there is no part yet, and nothing while the whole is 0."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def quantiles(histogram: str, *shares: float) -> tuple[Query, ...]:
    """Quantiles of times, each as exact as the histogram's buckets."""
    buckets = f"sum by (le) (rate({histogram}_bucket{{{BY_DRAFT}}}[$__rate_interval]))"
    return tuple(Query(f"histogram_quantile({each}, {buckets})", f"{each:.0%}") for each in shares)


def per_pass(by: str) -> str:
    """Tokens per target pass: a pass commits one token more than it accepts."""
    tokens, accepted = (rate(f"ray_taskspec_answer_{name}", by, BY_DRAFT) for name in ("tokens", "accepted"))
    return f"{tokens} / ({tokens} - ({accepted} or 0 * {tokens}) > 0)"


def acceptance(by: str) -> str:
    """The accepted share of what drafts proposed."""
    return share(
        rate("ray_taskspec_answer_accepted", by, OF_DRAFTS), rate("ray_taskspec_answer_proposed", by, OF_DRAFTS)
    )


TIMES_PLAIN = share(rate("ray_taskspec_verifier_plain_us"), rate("ray_taskspec_verifier_decoding_us"))
VERIFIERS = total("ray_taskspec_verifier_sessions", of="count")

GLANCE = (
    Panel(
        "Tokens",
        "What answers get a second.",
        "suffix: tokens/s",
        (Query(rate("ray_taskspec_answer_tokens", where=BY_DRAFT), "tokens"),),
        "number",
    ),
    Panel(
        "First token, 95 %",
        "Of 100 answers 95 begin sooner.",
        "s",
        quantiles("ray_taskspec_answer_time_to_first_token_seconds", 0.95),
        "number",
    ),
    Panel(
        "Times plain",
        "The speed of decoding in times that without proposals, as the verifier's own figures of a pass have it.",
        "suffix:x",
        (Query(TIMES_PLAIN, "times plain"),),
        "number",
        limit=1.0,
    ),
    Panel(
        "Acceptance",
        "The share of the tokens proposed by drafts that the target accepted.",
        "percentunit",
        (Query(acceptance(""), "accepted"),),
        "number",
    ),
    Panel(
        "Verifiers",
        "Those that run, as the ingress sees it.",
        "short",
        (Query(total("ray_taskspec_ingress_verifiers", of="max"), "verifiers"),),
        "number",
        limit=1.0,
    ),
    Panel(
        "Age of the bundle",
        "Since the bundle that serves most prompts was published.",
        "s",
        (
            Query(
                f"time() - max(ray_taskspec_rollout_created_timestamp_seconds{{{SERVICE}}} and on (job, version) "
                f"ray_taskspec_rollout_share{{{SERVICE}}} >= 0.5)",
                "age",
            ),
        ),
        "number",
    ),
)

OF_SERVICE = (
    Panel(
        "Answers by their end",
        "`stop` and `length` are whole answers; `abort` are those whose client left.",
        "reqps",
        (Query(rate("ray_vllm_request_success", "finished_reason", UNDER_VLLM_NAMES), "{{finished_reason}}"),),
        "stacked",
    ),
    Panel(
        "Responses by status",
        "To POST requests, as those for answers are; scrapes and health checks are left out. 429 is a limit of a key, "
        "503 a full queue or no verifier, 499 a client that left. By a proxy, 503 repeats that the queue is full, and "
        "502 says that no ingress answered.",
        "reqps",
        (
            Query(rate("ray_taskspec_http_responses", "status", f'{SERVICE},method="POST"'), "{{status}}"),
            Query(rate("ray_taskspec_proxy_refusals", "status"), "{{status}} by a proxy"),
        ),
        "stacked",
    ),
    Panel(
        "Tokens",
        "Those of prompts count as the verifier takes them in, of every task and version; those of answers as they are "
        "sent.",
        "suffix: tokens/s",
        (
            Query(rate("ray_taskspec_answer_tokens", where=BY_DRAFT), "answers"),
            Query(rate("ray_taskspec_verifier_prompt_tokens"), "prompts"),
        ),
    ),
    Panel(
        "Time to the first token",
        "From when the ingress has the prompt.",
        "s",
        quantiles("ray_taskspec_answer_time_to_first_token_seconds", 0.5, 0.95, 0.99),
    ),
    Panel(
        "Time per token",
        "Of an answer behind its first token.",
        "s",
        quantiles("ray_taskspec_answer_time_per_token_seconds", 0.5, 0.95, 0.99),
    ),
    Panel(
        "Time of an answer",
        "From when the ingress has the prompt until the last token.",
        "s",
        quantiles("ray_taskspec_answer_seconds", 0.5, 0.95, 0.99),
    ),
)

OF_SPECULATION = (
    Panel(
        "Acceptance by task and version",
        "The accepted share of what the draft of a task proposed, in a version of the bundle.",
        "percentunit",
        (Query(acceptance("task, version"), "{{task}} {{version}}"),),
    ),
    Panel(
        "Tokens per target pass by task and version",
        "1 is plain decoding. All sources of proposals count, and passes without any.",
        "short",
        (Query(per_pass("task, version"), "{{task}} {{version}}"),),
        limit=1.0,
    ),
    Panel(
        "Times plain",
        "The speed of decoding in times that without proposals, as the verifier's own figures of a pass have it.",
        "suffix:x",
        (Query(TIMES_PLAIN, "times plain"),),
        limit=1.0,
    ),
    Panel(
        "Tokens by source",
        "Who proposed for the pass that brought them: a draft, repeated text, earlier answers; or nobody.",
        "suffix: tokens/s",
        (Query(rate("ray_taskspec_answer_tokens", "source", BY_DRAFT), "{{source}}"),),
        "stacked",
    ),
    Panel(
        "Acceptance by source",
        "The accepted share of what each source proposed.",
        "percentunit",
        (
            Query(
                share(
                    rate("ray_taskspec_answer_accepted", "source", BY_DRAFT),
                    rate("ray_taskspec_answer_proposed", "source", BY_DRAFT),
                ),
                "{{source}}",
            ),
        ),
    ),
    Panel(
        "Moves from draft to draft",
        "Answers that went on with the draft of another task, as it accepts more.",
        "reqps",
        (Query(rate("ray_taskspec_ingress_moves", "from, to"), "{{from}} to {{to}}"),),
    ),
)

OF_LEARNING = (
    Panel(
        "Drift",
        "Of the last answers against the first under this bundle, as `taskspec retrain --watch` sees it: stability "
        "indices of the mix of tasks and of the distance to them, and the fall of acceptance. The line is where an "
        "index counts as drift, if nothing else is configured.",
        "short",
        (Query(total("ray_taskspec_drift", "kind", of="max"), "{{kind}}"),),
        limit=0.25,
    ),
    Panel(
        "Prompts by version",
        "The share of the prompts that each bundle gets; a canary gets the smaller one.",
        "percentunit",
        (Query(total("ray_taskspec_rollout_share", "version", of="max"), "{{version}}"),),
        "stacked",
    ),
    Panel(
        "Rollout",
        "What becomes of a new bundle: its pools start, it is a canary or on trial, or the service goes back.",
        "short",
        (Query(f"{total('ray_taskspec_rollout_state', 'state', of='max')} > 0", "{{state}}"),),
        "states",
    ),
    Panel(
        "Drafts in service, beside their replay",
        "The share of judged tokens that were accepted. Both fall with harder prompts; the first falls alone if a "
        "draft has decayed.",
        "percentunit",
        tuple(
            Query(
                share(rate(f"ray_taskspec_replay_{name}", "task"), rate("ray_taskspec_replay_judged", "task")),
                f"{{{{task}}}} {where}",
            )
            for name, where in (("accepted", "in service"), ("replayed", "replayed"))
        ),
    ),
    Panel(
        "Since the last retraining",
        "A watch notes when the last one began that was finished. What it published has the version's age.",
        "s",
        (
            Query(f"time() - {total('ray_taskspec_retrained_timestamp_seconds', of='max')}", "retraining"),
            Query(
                f"time() - {total('ray_taskspec_rollout_created_timestamp_seconds', 'version', of='max')}",
                "{{version}}",
            ),
        ),
    ),
    Panel(
        "Answers kept for training",
        "Written to the directory of traces.",
        "reqps",
        (Query(rate("ray_taskspec_traces_written"), "written"),),
    ),
)

OF_CAPACITY = (
    Panel(
        "Sessions",
        "Answers that run, at the verifiers and in each pool of drafts, and prompts that wait.",
        "short",
        (
            Query(total("ray_taskspec_verifier_sessions"), "verifiers"),
            Query(total("ray_vllm_num_requests_waiting", where=UNDER_VLLM_NAMES), "waiting"),
            Query(total("ray_taskspec_draft_sessions", "application"), "{{application}}"),
        ),
    ),
    Panel(
        "Replicas",
        "Those that report.",
        "short",
        (
            Query(total("ray_taskspec_ingress_verifiers", of="count"), "ingress"),
            Query(VERIFIERS, "verifier"),
            Query(total("ray_taskspec_draft_sessions", "application", of="count"), "{{application}}"),
        ),
    ),
    Panel(
        "KV cache in use",
        "Of a verifier, by answers that run. At 100 % answers wait or are preempted.",
        "percentunit",
        (Query(total("ray_vllm_kv_cache_usage_perc", "replica", UNDER_VLLM_NAMES, "max"), "{{replica}}"),),
    ),
    Panel(
        "Time of the verifiers",
        "The share spent in passes, and waiting for proposals; the rest of it there is nothing to do.",
        "percentunit",
        tuple(
            Query(f"{rate(f'ray_taskspec_verifier_{name}_us')} / 1e6 / {VERIFIERS}", legend)
            for name, legend in (("stepping", "passes"), ("waiting", "waiting for proposals"))
        ),
        "stacked",
    ),
    Panel(
        "Prompts from the cache",
        "The share of the prompts' tokens that an earlier prompt with the same beginning had left there.",
        "percentunit",
        (
            Query(
                share(rate("ray_taskspec_verifier_prefix_hit_tokens"), rate("ray_taskspec_verifier_prompt_tokens")),
                "from the cache",
            ),
        ),
    ),
    Panel(
        "Tokens drafted",
        "By each pool of drafts, accepted or not.",
        "suffix: tokens/s",
        (Query(rate("ray_taskspec_draft_drafted", "application"), "{{application}}"),),
    ),
)

ROWS = {
    "At a glance": GLANCE,
    "Service": OF_SERVICE,
    "Speculation by task and version": OF_SPECULATION,
    "Learning": OF_LEARNING,
    "Capacity": OF_CAPACITY,
}
