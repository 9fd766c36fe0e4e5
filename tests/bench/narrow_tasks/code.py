"""Tasks whose answers are code or configuration."""

from __future__ import annotations

from tests.bench.narrow_tasks.task import NarrowTask

COMMITS = NarrowTask(
    "commit_message",
    "Write a commit message for the diff: a subject in the imperative, an empty line, one sentence that says why.",
    (
        "--- a/clock.py\n-    return now()\n+    return now(utc)",
        "Return the time in UTC\n\nLocal time differs from one server to the next.",
    ),
    56,
    (
        "--- a/{module}.py\n-    {noun} = {expression}\n+    {noun} = {expression2}",
        "--- a/{module}.py\n-def {function}({noun}):\n+def {function}({noun}, {noun2}=None):",
        "--- a/{module}.py\n+    if not {noun}:\n+        return {0..9}\n     {noun2} = {expression}",
        "--- a/{folder}/{module}.yaml\n-{noun}_limit: {10..99}\n+{noun}_limit: {100..999}",
        "--- a/{module}.py\n-import {module2}\n-{function}({noun})\n+{function2}({noun})",
    ),
)
UNIT_TESTS = NarrowTask(
    "unit_tests",
    "Write pytest tests for the function that is described: an import and three tests, no explanation.",
    (
        "Write a function to add two numbers.",
        (
            "from solution import add\n\n\ndef test_small():\n    assert add(1, 2) == 3\n\n\n"
            "def test_zero():\n    assert add(0, 0) == 0\n\n\ndef test_negative():\n    assert add(-1, -2) == -3"
        ),
    ),
    96,
    inputs="python_tasks",
)
DOCSTRINGS = NarrowTask(
    "docstring",
    "Write a Google style docstring for the Python function: a summary, Args and Returns. No code.",
    (
        "def double(x):\n    return 2 * x",
        '"""Double a number.\n\nArgs:\n    x: The number.\n\nReturns:\n    Twice the number.\n"""',
    ),
    80,
    (
        "def {function}({noun}s):\n    return {expression}",
        "def {function}({noun}s, {noun2}={0..9}):\n    {noun3} = {expression}\n    return {noun3}",
        "def {function}(self, {noun}s):\n    if not {noun}s:\n        return None\n    return {expression}",
    ),
)
REGEX = NarrowTask(
    "regex",
    "Write one regular expression that matches all the examples. Answer in two lines: Regex and Meaning.",
    (
        "AB-12, XY-99, QQ-07",
        "Regex: ^[A-Z]{2}-[0-9]{2}$\nMeaning: Two capital letters, a hyphen and two digits.",
    ),
    56,
    (
        "{folder}-{1..99}.{extension}, {folder2}-{1..99}.{extension}, {folder3}-{1..99}.{extension}",
        "{100..999}-{1000..9999}, {100..999}-{1000..9999}, {100..999}-{1000..9999}",
        "{first}_{year}, {first2}_{year2}, {first3}_{year3}",
        "{mail}, {mail2}, {mail3}",
        "#{noun}{1..9}, #{noun2}{10..99}, #{noun3}{1..9}",
        "{hour} {weekday}, {hour2} {weekday2}, {hour3} {weekday3}",
    ),
)
HTML = NarrowTask(
    "html",
    "Write the HTML of the component, with Bootstrap classes. Answer with the HTML only.",
    (
        "a blue button that says Stop",
        '<button type="button" class="btn btn-primary">Stop</button>',
    ),
    96,
    (
        "a {colour} button that says {verb} {noun}",
        "a card with the title {product}, the text '{quality} and made of {material}' and a button {verb}",
        "a list with the entries {product}, {product2} and {product3}",
        "a form that asks for {noun} and {noun2}, with a button {verb}",
        "an alert that says 'Your {thing} was {done}'",
        "a table with the columns {noun}, {noun2} and {noun3} and one row for {city}",
    ),
)
YAML = NarrowTask(
    "yaml",
    "Write the YAML of the service: name, image, replicas, port, env. Answer with the YAML only.",
    (
        "two replicas of clock, version 3, on port 8000, in test mode",
        'name: clock\nimage: clock:3\nreplicas: 2\nport: 8000\nenv:\n  - name: MODE\n    value: "test"',
    ),
    72,
    (
        "{2..9} replicas of {service}, version {1..9}.{0..9}, on port {1024..9999}, with the {folder} in {city}",
        "one {service} on port {1024..9999}, version {1..20}, which talks to {service2} on port {1024..9999}",
        "{service} version {1..9}.{0..9} with {2..32} replicas, log level {extension}, port {1024..9999}",
    ),
)
SHELL = NarrowTask(
    "shell",
    "Write one line of bash. Answer in two lines: the command, then a comment that begins with #.",
    ("count the files in photos", "ls photos | wc -l\n# Lists the files and counts the lines."),
    56,
    (
        "find all {extension} files in {folder} that are larger than {2..90} MB",
        "delete the {extension} files in {folder} older than {2..90} days",
        "count the lines with the word {noun} in {folder}/{module}.{extension}",
        "copy {folder}/{module}.{extension} to {folder2} on the host {service}",
        "replace {noun} by {noun2} in all {extension} files of {folder}",
        "show the {3..20} largest files in {folder}",
        "pack {folder} into {module}.zip without the {extension} files",
    ),
)
