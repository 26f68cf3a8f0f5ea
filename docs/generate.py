"""What the site takes from the code and from files outside this folder; a hook of MkDocs, see ``mkdocs.yml``.

A page asks for a list with a comment, ``<!-- generated: methods -->``. Benchmark results, node configurations and the
documents at the top of the repository become pages, so that links to them work.
"""

import ast
import inspect
import io
import os
import posixpath
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, get_args
from unittest import mock

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from pydantic.fields import FieldInfo

import v6_federated
from v6_federated.messages import relations
from v6_federated.messages.common import Common
from v6_federated.rules import limits as node_limits
from v6_workbench import registry
from v6_workbench.cli import main as command_line
from v6_workbench.network import store

ROOT = Path(__file__).parents[1]
sys.path.append(str(Path(__file__).parent))  # of this hook's own modules

import notebooks  # noqa: E402  # only now is its folder on the path

TOUR = ROOT / "examples" / "tour.ipynb"
FIRST = ("central", "partial", "Federation", "Answers", "Answer", "Node", "LocalSGD", "PlainSGD")  # in the API
OTHERS = {  # names in the API that have no docstring
    "CollectResultsError": "vantage6's error: too few nodes answered",
    "UserInputError": "vantage6's error: the request was wrong",
    "ONE_STEP": "says what serves where several local steps are not answered (`hospital_totals=hidden`)",
    "RISK_SETS": "the same of losses that compare each row with the others of its hospital",
    "ROW": "whole numbers into which `bounded_sum` and `bounded_rows` divide the length 1",
    "HeldOut": "declares of a setting that it needs rows to evaluate on: `holdout` or `evaluators`",
    "NoClasses": "declares of a setting that the label is then a number: no `classes`, `target` and the like",
    "LARGE": "the largest whole number that a setting may have",
    "Number": "marks a setting as a number: true and false are refused (`Annotated[float, Field(ge=0), Number]`)",
    "Result": "what central and partial functions return: a dictionary, see [result.json](/docs/reference/result.md)",
    "Vector": "a model's parameters or a gradient, (d,): a numpy array, or a tensor of a torch model",
    "__version__": "of this package",
}
MARKER = re.compile(r"^<!-- generated: (\S+) -->$", re.MULTILINE)
README = re.compile(
    r"(?<=<!-- methods: `make docs` checks this table -->\n\n).*?(?=\n\n<!-- end of methods -->)", re.DOTALL
)
LINK = re.compile(r"\[([^\[\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)")  # a slash first is the top of the repository
# what a browser would fetch from another host as soon as it shows a page; links that a reader follows are none
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|prefetch|icon))[^>]*?\bhref=["']?(?:https?:)?//"""
    r"""|(?:url\(|@import\s)["']?(?:https?:)?//""",
    re.IGNORECASE,
)


# ---- lists from the code


def methods() -> list[str]:
    """The methods of this repository; others may be installed as well."""
    return [name for name in registry.names() if registry.folder_of(name).is_relative_to(ROOT / "algorithms")]


def methods_table(pages: str = "/docs/methods") -> str:
    """A row for each method: its page, and the first paragraph of its docstring."""
    rows = [(_page(name, pages), _paragraphs(name)[0]) for name in methods()]
    return _table(("method", "what it is"), rows)


def leaves() -> str:
    """What each method sends, as its docstring says it."""
    rows = []
    for name in methods():
        found = re.search(r"What leaves a node: (.*?) (Bytes\b.*)", _paragraphs(name)[-1])
        if found is None:
            raise PluginError(
                f"the docstring of {name}'s central lacks 'What leaves a node: ...' or 'Bytes a round: ...'"
            )
        rows.append((_page(name), found[1], found[2]))
    return _table(("method", "what leaves a node", "bytes"), rows)


def limits() -> str:
    """Every limit of a node: its value in each profile and the attack that it is against, then what it does."""
    rows, lines = [], []
    for limit in node_limits.LIMITS:
        rows.append((f"`{limit.name}`", *(_limit(limit, limit.value(p)) for p in node_limits.PROFILES), limit.stops))
        lines.append(f"- `{node_limits.PREFIX}{limit.name}`: {limit.does}.")
    table = _table(
        (f"`{node_limits.PREFIX}`...", *(f"`{profile}`" for profile in node_limits.PROFILES), "against"), rows
    )
    return "\n".join([table, "", "What each does:", "", *lines])


def _limit(limit: node_limits.Limit, value: node_limits.Value) -> str:
    if value in node_limits.BY_NAME:
        return f"as `{value}`"
    if limit.kind == "mode":
        return f"`{value}`"
    if limit.kind == "switch":
        return f"`{int(bool(value))}`"
    if limit.kind == "names":
        return "all" if value in (None, node_limits.EVERY) else "none"
    return "no limit" if value is None or (value == 0 and limit.stricter == "higher") else f"{int(value):,}"


def declared() -> str:
    """What a method declares about itself."""
    rows = []
    for name in methods():
        needs = ", ".join(registry.extras_of(name)) or "nothing more"
        lost = "yes" if registry.recoverable(name) else "no"
        rows.append((_page(name), "yes" if registry.supervised(name) else "no", lost, needs))
    return _table(("method", "needs a label", "goes on from a lost central function", "needs, besides numpy"), rows)


def sums() -> str:
    """Which methods work where central learns sums only, and why the others do not."""
    rows = []
    for name in methods():
        reason = registry.single_answers(name)
        rows.append((_page(name), f"no: {reason}" if reason else "yes"))
    return _table(("method", "works with secure aggregation"), rows)


def settings() -> str:
    """The settings that all methods take, and then each method's own."""
    parts = ["## All methods", _settings(methods()[0], Common.model_fields)]
    for name in methods():
        shown = registry.settings_of(name).model_fields.keys() - registry.unused(name)
        own = [
            field for field in registry.settings_of(name).model_fields if field in shown - Common.model_fields.keys()
        ]
        parts += [f"## `{name}`", f"[What the method does](/docs/methods/{name}.md)", _settings(name, own)]
    return "\n\n".join(parts)


def _settings(method: str, names: Iterable[str]) -> str:
    (central,) = store.entry(method)["functions"]
    declared = registry.settings_of(method)
    arguments = {argument["name"]: argument for argument in central["arguments"]}
    rows = []
    for name in names:
        argument = arguments[name]
        default = argument.get("default_value", "unset") if argument["has_default_value"] else "required"
        values = argument.get("allowed_values", [argument["type"].replace("_", " ")])
        fits = relations.words(declared, name, mark="`")
        meaning = declared.model_fields[name].description or name
        rows.append((f"`{name}`", " or ".join(map(str, values)), f"`{default}`", meaning, fits))
    return _table(("setting", "values", "default", "meaning", "needs, and not with"), rows)


def commands() -> str:
    """The help of every command."""
    parts = []
    for name in _subcommands():
        names = [f"{name} {action}" for action in _subcommands(name)] or [name]
        parts += [f"## {each}\n\n```text\n{_help(*each.split())}\n```" for each in names]
    return "\n\n".join(parts)


def _subcommands(*command: str) -> list[str]:
    return re.findall(r"^    (\w+) ", _help(*command), re.MULTILINE)


def _help(*command: str) -> str:
    shown = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="88"), redirect_stdout(shown), suppress(SystemExit):
        command_line.main([*command, "--help"])
    return shown.getvalue().strip()


def face() -> str:
    """Every name that a method may import: functions and classes, modules, types of settings, the rest."""
    entries, modules, types, others = list[str](), list[str](), [], []
    for name in [*FIRST, *(name for name in v6_federated.__all__ if name not in FIRST)]:
        value = getattr(v6_federated, name)
        fields = [part for part in get_args(value)[1:] if isinstance(part, FieldInfo)]
        if fields:
            types.append((f"`{name}`", fields[0].description or ""))
        elif isinstance(value, ModuleType):
            modules.append(f"::: {value.__name__}\n    options:\n      heading_level: 3")
        elif callable(value) and value.__module__.startswith("v6_federated."):
            entries.append(f"::: {value.__module__}.{value.__qualname__}")
        else:
            others.append((f"`{name}`", OTHERS[name]))
    return "\n\n".join(
        [
            *entries,
            "## Types of settings",
            _table(("type", "meaning"), types),
            "## Other names",
            _table(("name", "meaning"), others),
            "## Modules",
            "Import these whole: `from v6_federated import codec`.",
            *modules,
        ]
    )


def results() -> str:
    """How many numbers are near the documents', and a link to each page of the benchmarks."""
    text = (ROOT / "benchmarks" / "results" / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?=[\w-]+\.md\))", "](/benchmarks/results/", text.partition("\n")[2])


def attacks() -> str:
    """What each attack brought under each profile, as it was measured."""
    text = (ROOT / "benchmarks" / "results" / "attacks.md").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def configurations() -> str:
    """Every node configuration, whole."""
    files = sorted((ROOT / "node_configs").glob("*.yaml"))
    return "\n\n".join(f"## {file.name}\n\n```yaml\n{file.read_text(encoding='utf-8').strip()}\n```" for file in files)


LISTS: dict[str, Callable[[], str]] = {
    "methods": methods_table,
    "leaves": leaves,
    "limits": limits,
    "declared": declared,
    "sums": sums,
    "settings": settings,
    "commands": commands,
    "face": face,
    "results": results,
    "attacks": attacks,
    "configurations": configurations,
}


def generated(name: str) -> str:
    """A list by its name, or the code in a file of ``algorithms/``, of which a colon and a name choose a part."""
    if name in LISTS:
        return LISTS[name]()
    path, _, wanted = name.partition(":")
    code = (ROOT / "algorithms" / path).read_text(encoding="utf-8").strip()
    return f"```python\n{_definition(code, wanted) if wanted else code}\n```"


def _definition(code: str, name: str) -> str:
    """The function, class or method (``Class.method``) of this name."""
    at: ast.AST = ast.parse(code)
    for part in name.split("."):
        at = next(node for node in ast.iter_child_nodes(at) if getattr(node, "name", None) == part)
    assert isinstance(at, ast.FunctionDef | ast.ClassDef)
    return textwrap.dedent("\n".join(code.split("\n")[at.lineno - 1 : at.end_lineno]))


def _page(method: str, pages: str = "/docs/methods") -> str:
    return f"[`{method}`]({pages}/{method}.md)"


def _paragraphs(method: str) -> list[str]:
    text = inspect.getdoc(registry.central_of(method)) or ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads)]
    lines += [["---"] * len(lines[0]), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _results() -> list[Path]:
    return sorted(p for p in (ROOT / "benchmarks" / "results").glob("*.md") if p.name not in ("README.md", "REPORT.md"))


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


# ---- files outside docs/

OUTSIDE = {name: f"{name.lower()}" for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")}
PAGES = {  # what else a link may point to, and the page that stands for it
    "README.md": "index.md",
    "node_configs": "reference/node_configs.md",
    "examples/user_client.py": "reference/user_client.md",
    "examples/tour.ipynb": "tour.md",
    "benchmarks/results": "results/index.md",
    "benchmarks/results/README.md": "results/index.md",
}


def outside() -> dict[str, str]:
    """The pages made of files outside this folder, by the file's place in the repository."""
    found = [*_results(), *sorted((ROOT / "benchmarks" / "results").glob("*.png"))]
    return {**OUTSIDE, **{str(path.relative_to(ROOT)): f"results/{path.name}" for path in found}}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of methods and results to the navigation."""
    config.nav = [_filled(entry) for entry in config.nav or []]
    return config


def _filled(entry: Any) -> Any:
    more: dict[str, list[Any]] = {
        "Methods": [f"methods/{name}.md" for name in methods()],
        "Results": [{_title(path): f"results/{path.name}"} for path in _results()],
    }
    return {title: [*pages, *more[title]] if title in more else pages for title, pages in entry.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that become pages."""
    for place, page in outside().items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / place)))
    example = (ROOT / "examples" / "user_client.py").read_text(encoding="utf-8")
    script = "".join(f"    {line}\n" for line in example.splitlines())
    text = f"# A task by hand, with vantage6's client\n\n`examples/user_client.py`:\n\n{script}"
    files.append(File.generated(config, "reference/user_client.md", content=text))
    files.append(File.generated(config, "tour.md", content=notebooks.page(notebooks.read(TOUR))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the generated lists in, and turn links to files into links to the pages made of them."""
    here = page.file.src_uri
    origin = {shown: place for place, shown in outside().items()}.get(here, f"docs/{here}")
    known = {**outside(), **PAGES}

    def link(match: re.Match[str]) -> str:
        text, place, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join("/", posixpath.dirname(origin), place)).lstrip("/")
        shown = known.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(shown):
            return f"[{text}]({posixpath.relpath(shown, posixpath.dirname(here) or '.')}{anchor})"
        return text if (ROOT / target).is_dir() else match[0]  # a folder has no page

    return LINK.sub(link, MARKER.sub(lambda match: generated(match[1]), markdown))


# ---- checks


def readme(text: str) -> str:
    """The README with the table of methods as the code has it."""
    return README.sub(lambda _: methods_table("docs/methods"), text)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Refuse a README whose table of methods is not up to date."""
    file = ROOT / "README.md"
    if README.search(text := file.read_text(encoding="utf-8")) is None or readme(text) != text:
        raise PluginError("README.md does not list the methods as the code has them; run: python docs/generate.py")
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that makes its readers' browsers call another host."""
    for file in sorted(Path(config.site_dir).rglob("*")):
        if file.suffix in (".html", ".css") and (found := FETCHED.search(file.read_text(encoding="utf-8"))):
            raise PluginError(f"{file.relative_to(config.site_dir)} fetches from another host: {found[0]}")


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(readme(page.read_text(encoding="utf-8")), encoding="utf-8")
