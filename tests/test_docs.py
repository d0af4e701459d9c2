"""Docs that repeat the code are kept true by these tests; run with FARMCTL_WRITE_DOCS=1 to rewrite them."""

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
import yaml
from farmproxy.core.pods import state_diagram
from farmwire.reasons import ANSWERS, End

from farmctl import cli
from farmctl.cli import VERBS
from farmctl.scenarios.catalogue import find_all

ROOT = Path(__file__).resolve().parent.parent
REASONS = (ROOT / "wire/farmwire/reasons.py").read_text()


def refusals() -> str:
    rows = [
        f"| {a.status} | `{r}` | {a.retry_after_s if a.retry_after_s is not None else '-'} |"
        for r, a in ANSWERS.items()
    ]
    return "\n".join(["| status | reason | Retry-After, s |", "|---|---|---|", *sorted(rows)]) + "\n"


def ends() -> str:
    said = dict(re.findall(r'= "([a-z-]+)"  # (.+)', REASONS))
    return (
        "\n".join(["| end | meaning |", "|---|---|", *(f"| `{end}` | {said[end]} |" for end in End)]) + "\n"
    )


def scenarios() -> str:
    told = []
    for scenario in find_all():
        module = importlib.import_module(f"farmctl.scenarios.claims.{scenario.name.replace('-', '_')}")
        body = module.__doc__.partition(": ")[2].strip()
        told.append(f"## {scenario.name}\n\n*{scenario.claim}*\n\n{body[0].upper()}{body[1:]}\n")
    return "\n".join(told)


@pytest.mark.parametrize(
    ("page", "part", "wanted"),
    [
        ("architecture.md", "diagram", lambda: f"```mermaid\n{state_diagram()}```\n"),
        ("door.md", "refusals", refusals),
        ("door.md", "ends", ends),
        ("scenarios.md", "scenarios", scenarios),
    ],
)
def test_generated_parts_are_what_the_code_says(page, part, wanted):
    path = ROOT / "docs" / page
    text = path.read_text()
    found = re.search(rf"(<!-- {part}:.*?-->\n)(.*?)(<!-- /{part} -->)", text, flags=re.DOTALL)
    assert found, f"{page} has no part {part}"
    if os.environ.get("FARMCTL_WRITE_DOCS"):
        path.write_text(text[: found.start(2)] + wanted() + text[found.end(2) :])
    else:
        assert found[2] == wanted(), f"docs/{page} is stale: FARMCTL_WRITE_DOCS=1 make test"


def test_modules_stay_small():
    sources = [p for d in ("farmctl", "proxy", "agent", "wire") for p in (ROOT / d).rglob("*.py")]
    sizes = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources}
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_the_readme_names_commands_that_exist():
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z0-9]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"make ([a-z0-9]+)", text)) <= targets
    assert set(re.findall(r"farmctl ([a-z]+)", text)) - {"scenario"} <= set(VERBS)
    for link in re.findall(r"\]\((docs/[^)]+)\)", text):
        assert (ROOT / link).exists(), link


def test_the_action_in_the_readme_has_the_inputs_that_it_names():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for page in ("README.md", "docs/ci.md"):
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
        used = [
            step for block in blocks for step in yaml.safe_load(block) if "/farmctl@" in step.get("uses", "")
        ]
        assert used
        assert all(set(step.get("with", {})) <= set(action["inputs"]) for step in used)
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/ci.md").read_text(), flags=re.MULTILINE)
    assert set(table) == set(action["inputs"])


def commands(page: Path) -> list[list[str]]:
    """Every `farmctl ...` that stands in a page as a command, one a line, or inline with options."""
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    lines = re.findall(r"^(?:\s*(?:- )?(?:run: )?)(farmctl .+)$", fenced, flags=re.MULTILINE)
    lines += re.findall(r"^    (farmctl .+)$", text, flags=re.MULTILINE)
    lines += re.findall(r"`(farmctl [a-z][^`\n]*)`", text)
    return [shlex.split(part) for line in lines for part in re.sub(r"\s#.*", "", line).split(";")]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_farmctl_command_of_a_page_is_one_that_farmctl_takes(page):
    """Parsed by farmctl's own parser, not run: a renamed option or verb makes the page wrong."""
    app = typer.main.get_command(cli.build())
    for _, verb, *rest in commands(page):
        assert verb in VERBS, verb
        words = [word for word in rest if word not in {"NAME…", "…"} and "|" not in word]
        command = app.commands[verb]
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert options <= {*known, "-h", "--help"}, f"{page.name}: farmctl {verb} {' '.join(rest)}"


ELSEWHERE = "|".join(
    ("field cases?" + r" \d", r"\(" + "design[:)]", "design" + r" §?\d", r"\bdesign" + r"\.md")
)


def test_no_file_names_a_list_that_the_repository_does_not_have():
    """A reference that a reader cannot follow: the fact itself stands in its place."""
    found = subprocess.run(
        ["git", "grep", "-niP", ELSEWHERE, "--", ".", ":!CHANGELOG.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (1, ""), found.stderr


PLACES = r"(?<![\w./~-])((?:proxy|agent|wire|farmctl|tests|docs)/[\w./-]*\w)"
MODULES = r"(?<![\w./-])((?:farmproxy|farmagent|farmctl|farmwire)(?:\.\w+)+)"


def exists(name: str) -> bool:
    """A module, or a name in one."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute) or bool(importlib.util.find_spec(name))
    except ModuleNotFoundError:
        return False


WRITTEN = [page for page in PAGES if not page.name.startswith("performance")]  # those are of a run, as it was


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_a_page_names_modules_and_files_that_exist(page):
    text = re.sub(r"farmctl\.dev/\S+|https?://\S+", "", page.read_text())
    assert [path for path in re.findall(PLACES, text) if not (ROOT / path).exists()] == []
    assert [name for name in re.findall(MODULES, text) if not exists(name)] == []


def test_each_word_stands_once_in_the_lexicon_in_order():
    lexicon = (ROOT / "docs/architecture.md").read_text().partition("## Words")[2].partition("\n## ")[0]
    words = [word.casefold() for word in re.findall(r"^\| ([^|]+) \|", lexicon, flags=re.MULTILINE)[1:]]
    assert len(words) > 50
    assert words == sorted(set(words))
