"""The site: mistakes that `sphinx -W` does not notice."""

import importlib
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import dmlsplit as dml
from benchmarks.cases import CASES
from benchmarks.results import load
from dmlsplit.cli import build_parser
from dmlsplit.cli.levels import level_table
from dmlsplit.directml.levels import support_table
from dmlsplit.lint.rule_page import rule_page
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.runtimes import runtime_table
from dmlsplit.lint.target import level_releases
from dmlsplit.self_test import stages
from dmlsplit.self_test.cases import LAYOUTS
from tests.support.command import ROOT

DOCS = ROOT / "docs"
# Of the pages that show what was measured on a processor.
MEASURED = load(ROOT / "benchmarks" / "results" / "cpu-epyc-3.json")["rows"]
TEXTS = {
    str(path.relative_to(DOCS).with_suffix("")): path.read_text("utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "rules" not in path.parts  # written when the site is built
}


def extension(name: str) -> ModuleType:
    """One of the project's Sphinx extensions, which do not need Sphinx until a build begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / "extensions")
        return importlib.import_module(name)


def test_predictions_in_the_text_are_those_of_the_table() -> None:
    text = " ".join((ROOT / "benchmarks" / "README.md").read_text("utf-8").split())
    table = re.match(
        r"- \d+ workloads\n"
        r"- sectors read: at most (?P<read>\S+) times the least possible\n"
        r"- sectors written: at most (?P<written>\S+) times the least possible\n"
        r"- instructions issued per 16 bytes: (?P<issued>\d+ to \d+)\n"
        r"- predicted on H100: (?P<h100>\S+ to \S+) of a copy's speed\n"
        r"- predicted on H200: (?P<h200>\S+ to \S+) of a copy's speed",
        extension("tables").predicted_ranges(),
    )
    assert table
    for sentence in (
        f"read at most {table['read']} times the minimum number of sectors",
        f"write at most {table['written']} times the minimum",
        f"issue {table['issued']} instructions per 16 bytes",
        f"{table['h200']} of a copy's speed on an H200 and {table['h100']} on an H100",
    ):
        assert sentence in text


def test_every_table_names_the_directml_that_has_a_level() -> None:
    """Level 2_1 came with 1.2.0, which nobody could get. A table with only 1.4.0 says so."""
    rows_by_level = {row.level: row for row in support_table().values()}
    (hidden,) = (row for row in rows_by_level.values() if not row.is_public)
    first = level_releases(hidden.level).directml
    assert (str(hidden.level), hidden.directml, first) == ("2_1", "1.2.0", "1.4.0")
    assert f"| 2_1 | 1.2.0, not widely available; {first} is" in extension("tables").levels()
    assert level_table().count("*") == level_table().count("\n2_1    1.2.0*  ") == 1
    assert f"DirectML {hidden.directml}" in TEXTS["levels"]


def test_the_table_of_types_says_since_when_onnx_runtime_runs_int64_on_directml() -> None:
    (heading, _, *rows) = extension("tables").provider_types().splitlines()
    column = next(i for i, cell in enumerate(heading.split("|")) if "INT64" in cell.split(", "))
    spans = {row.split("|")[1].strip(): row.split("|")[column].strip() for row in rows}
    assert spans == {"1.3 to 1.9": "**no**", f"1.10 to {runtime_table().newest}": "yes"}
    runs = [r for r in runtime_table().onnxruntime if "INT64" in r.provider.element_types.value]
    text = " ".join(TEXTS["levels"].split())
    assert f"Since {runs[0]}, its provider runs Splits of INT64" in text


def test_the_table_of_launches_agrees_with_the_planner() -> None:
    """The table is exact to the output at which a second launch begins."""
    launch_table = extension("launches")
    table = extension("tables").launches()
    for layout in launch_table.LAYOUTS:
        most = launch_table.most_in_one_launch(layout)
        row = re.search(rf"^\| {layout} \| (.*?) \| (.*) \|$", table, re.MULTILINE)
        assert row, layout
        assert row[1] == (f"{most:,}" if most else "never one")
        assert most == 0 or launch_table.launches(layout, most) == 1
        assert launch_table.launches(layout, most + 1 if most else 2) > 1
        counts = [launch_table.launches(layout, count) for count in launch_table.SHOWN]
        assert row[2].split(" | ") == list(map(str, counts))


def test_received_reports_of_the_self_test_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = extension("tables")
    assert tables.selftest_reports() == "No report has arrived yet."
    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    report = dml.selftest("cpu", seconds=0)
    speeds = (*report.speeds[:1], report.speeds[0]._replace(share=0.5, min_share=0.9))
    slow = replace(report, speeds=speeds, is_strict=True, name="a GPU")
    for name, report_shown in (("a", slow), ("b", replace(report, results=(), speeds=()))):
        (tmp_path / f"{name}.json").write_text(report_shown.to_json())
    monkeypatch.setattr(tables, "REPORTS", tmp_path)
    first, second = tables.selftest_reports().splitlines()[2:]
    row = rf"\| a GPU \| \S+ \| too slow \| {len(report.results)} \| \d+ \| 0.50 to 0.50 \|"
    assert re.fullmatch(row, first)
    assert second.endswith("| not run | 0 | - | - |")


def test_the_page_of_commands_has_every_command() -> None:
    (action,) = (
        parser_action
        for parser_action in build_parser()._actions
        if isinstance(parser_action.choices, dict)
    )
    paths = re.findall(r"```{command-help} (\w+)", TEXTS["commands"])
    assert action.choices is not None
    assert paths == list(action.choices)
    assert re.findall(r"^## (\w+)$", TEXTS["commands"], re.MULTILINE) == paths


def test_every_public_name_and_front_end_is_in_the_reference() -> None:
    text = "\n".join(text for page, text in TEXTS.items() if page.startswith("api/"))
    documented_names = re.findall(r"auto(?:class|function|exception):: dmlsplit\.(\w+)", text)
    assert set(dml.__all__) <= set(documented_names)
    modules = {path.stem for path in ROOT.glob("dmlsplit/frontends/*.py")}
    assert modules - {"__init__", "public"} == set(
        re.findall(r"automodule:: dmlsplit\.frontends\.(\w+)\n", text)
    )


INDEX_ENTRIES = [
    (term.removeprefix("! "), page)
    for page, text in TEXTS.items()
    for index_line in re.findall(r"^```{index} (.*)$", text, re.MULTILINE)
    for term in index_line.split(", ")
]


def test_an_entry_of_the_index_is_on_one_page() -> None:
    """It is the first answer to a search."""
    assert len(dict(INDEX_ENTRIES)) == len(INDEX_ENTRIES)


def test_the_number_of_every_error_leads_to_the_page_of_errors() -> None:
    errors = (dml.InvalidArgumentError, dml.UnsupportedError, dml.OutOfMemoryError)
    numbers = {f"{error.hresult:08X}" for error in (*errors, dml.DeviceRemovedError)}
    assert numbers < {term for term, page in INDEX_ENTRIES if page == "errors"}


def patterns_of_the_search() -> list[re.Pattern[str]]:
    """What the script of the search replaces: the prefix of a number, and a level."""
    code = (DOCS / "extensions" / "page_search.py").read_text("utf-8")
    patterns = re.findall(r"\.replace\(/(.*?)/gi, ", code)
    return [re.compile(pattern.replace("\\\\", "\\"), re.I) for pattern in patterns]


def test_a_search_finds_a_number_with_and_without_0x() -> None:
    prefix, _ = patterns_of_the_search()
    codes = "0x80070057 0x887A0005 0x10 FP0x80070057"
    assert prefix.sub("", codes) == "80070057 887A0005 0x10 FP0x80070057"


@pytest.mark.parametrize(
    "spelling", ["4_0", "DML_FEATURE_LEVEL_4_0", "feature level 2_1", "--feature-level 5_0"]
)
def test_a_search_for_a_level_leads_to_the_page_of_levels(spelling: str) -> None:
    _, level = patterns_of_the_search()
    assert level.sub("feature level", spelling) == "feature level"
    assert ("feature level", "levels") in INDEX_ENTRIES


@pytest.mark.parametrize("text", ["x86_64", "24_576", "int4_0"])
def test_a_search_takes_no_other_number_for_a_level(text: str) -> None:
    _, level = patterns_of_the_search()
    assert not level.search(text)


def test_the_description_of_a_rules_page_is_the_sentence_of_the_rule() -> None:
    """A rule's page begins with a message, which says little in a list of pages."""
    summaries = extension("summaries")
    sentence = RULES["DML-SPLIT-AXIS-RANGE"].sentence
    assert summaries.description("rules/DML-SPLIT-AXIS-RANGE", None) == sentence
    assert all(len(summaries.description(f"rules/{name}", None)) <= 200 for name in RULES)


def test_the_chart_shows_the_measured_times_of_every_library() -> None:
    """Farther right is slower, and no time lies beyond the axis."""
    chart = extension("chart")
    svg = chart.cpu()
    times = {
        (row["case"], row["threads"], row["peer"]): row["seconds"]["median"]
        for row in MEASURED
        if row["kind"] == CASES and row["status"] == "ok"
    }
    ratios = [
        (name, time / times[case, threads, "dmlsplit"])
        for (case, threads, name), time in times.items()
        if name in chart.LIBRARIES
    ]
    assert len(ratios) == 2 * 7 * 3
    for name, ratio in ratios:
        assert svg.count(f"<title>{name}: {ratio:.2f}</title>") >= 1
    assert min(ratio for _, ratio in ratios) > 0.8
    assert max(ratio for _, ratio in ratios) < 100
    assert chart._x(2) - chart._x(1) == pytest.approx(chart._x(100) - chart._x(50))


def test_the_answer_to_how_fast_is_that_of_the_measurements() -> None:
    text = extension("tables").performance()
    slower_count = extension("tables").slower().count("\n") - 1
    compared = sum(
        row["status"] == "ok" and not row["peer"].startswith(("dmlsplit", "plain copy"))
        for row in MEASURED
    )
    assert f"[win {slower_count} of {compared} comparisons](#where-dmlsplit-is-slower)" in text
    assert text.count(". ") == 2
    latency = load(ROOT / "benchmarks" / "results" / "latency-epyc-3.json")["rows"]
    for layout in {(row["kind"], row["at"]) for row in latency}:
        rows = [row for row in latency if (row["kind"], row["at"]) == layout]
        times = {row["peer"]: row["seconds"]["median"] for row in rows if row["status"] == "ok"}
        assert min(times, key=times.__getitem__) == "dmlsplit", layout  # a bound dispatch


def test_a_copy_that_is_faster_than_a_split_is_named() -> None:
    """Of the seven cases, on the page whose chart has no copies."""
    times = {
        (row["case"], row["peer"]): row["seconds"]["median"]
        for row in MEASURED
        if row["kind"] == CASES and row["threads"] == 1 and row["status"] == "ok"
    }
    copies = {case: time for (case, peer), time in times.items() if peer == "plain copy"}
    faster = {case: time for case, time in copies.items() if time < times[case, "dmlsplit"]}
    ((case, time),) = faster.items()
    ratio = time / times[case, "dmlsplit"]
    text = " ".join(TEXTS["performance"].split())
    rows = "the split of RGB pixels into planes"
    assert f"took {ratio:.2f} of the time of {rows} ({case[0]} in the chart)." in text


def test_figures_in_the_text_are_those_of_the_results() -> None:
    instead = load(ROOT / "benchmarks" / "results" / "instead.json")["rows"]
    least = {(r["case"], r["peer"]): r["seconds"]["least"] for r in instead if r["status"] == "ok"}
    ratios = {key: time / least[key[0], "dmlsplit"] for key, time in least.items()}
    text = " ".join(TEXTS["python"].split())
    copying = [
        ratio
        for (case, peer), ratio in ratios.items()
        if "16 MiB" in case and peer in ("the call that copies", "views, each copied")
    ]
    assert f"took {min(copying):.2f} to {max(copying):.2f} times as long" in text
    small, middle = (
        ratios[f"PyTorch, `out=`, {size}", "the call that copies"] for size in ("256 B", "64 KiB")
    )
    assert f"it took {small:.2f} of the time for an input of 256 bytes, and {middle:.2f}" in text
    host = load(ROOT / "benchmarks" / "results" / "dispatch.json")["rows"]
    times = {(row["at"], row["peer"]): row["seconds"]["median"] for row in host}
    slowdowns = [times[n, "regroup"] / times[n, "split into"] for n in (3, 8, 16, 64, 256)]
    range_ = f"takes {min(slowdowns):.1f} to {max(slowdowns):.1f} times the host time"
    assert range_ in " ".join(TEXTS["pytorch"].split())


def test_links_to_files_off_the_site_lead_to_the_repository() -> None:
    linked = extension("repository_links").linked
    pages = frozenset({DOCS / "ci.md"})
    text = (
        "[a](ci.md#x) [b](design/007-no-journal.md) [c](../ARCHITECTURE.md#y) [d](https://e/f) "
        "[e](design) ![f](pictures/split.svg) [g](#h) [i](rules/NAME.md)"
    )
    main = "https://e/blob/main/"
    assert linked(text, DOCS, "https://e", pages) == (
        f"[a](ci.md#x) [b]({main}docs/design/007-no-journal.md) [c]({main}ARCHITECTURE.md#y) "
        "[d](https://e/f) [e](https://e/tree/main/docs/design) ![f](pictures/split.svg) [g](#h) "
        "[i](rules/NAME.md)"
    )


def test_every_page_of_the_site_is_in_the_sidebar_by_its_title() -> None:
    """A sidebar, a breadcrumb and a heading with three names for a page confuse."""
    toctrees = re.findall(r"^```{toctree}\n(.*?)```", TEXTS["index"], re.DOTALL | re.MULTILINE)
    lines = [line for block in toctrees for line in block.splitlines() if line and line[0] != ":"]
    assert not [line for line in lines if "<" in line]  # titles of their own
    off = re.findall(r'\*\("extensions", (.*?)\)', (DOCS / "conf.py").read_text("utf-8"))[0]
    names = {name.strip('", ').removesuffix(".md") for name in off.split(",")}
    pages = {page for page in TEXTS if page.partition("/")[0] not in names} - {"index"}
    assert sorted(lines) == sorted(pages | {"rules/index"})
    assert len(lines) <= 35
    titles = {page: TEXTS[page].partition("\n")[0] for page in pages - {"CHANGELOG"}}
    assert [page for page, title in titles.items() if not 4 < len(title) <= 40] == []


def test_every_case_that_another_library_wins_is_listed() -> None:
    table = extension("tables").slower()
    own_seconds = {
        (r["case"], r["threads"]): r["seconds"] for r in MEASURED if r["peer"] == "dmlsplit"
    }
    for row in MEASURED:
        if row["status"] == "ok" and row["peer"] in ("torch", "onnxruntime", "openvino"):
            our_seconds, peer_seconds = own_seconds[row["case"], row["threads"]], row["seconds"]
            is_slower = all(peer_seconds[kind] < our_seconds[kind] for kind in ("median", "least"))
            assert is_slower == (f"| {row['case']} | {row['threads']} | {row['peer']} |" in table)


# The pages of rules, which an extension writes when the site is built.


def test_there_is_a_page_per_rule_and_an_index(tmp_path: Path) -> None:
    extension("rule_pages").write_pages(tmp_path / "rules")
    pages = {path.stem: path.read_text("utf-8") for path in (tmp_path / "rules").iterdir()}
    index = pages.pop("index")
    assert pages == {name: rule_page(rule) for name, rule in RULES.items()}
    for name, rule in RULES.items():
        basis = rule.basis if rule.basis == "policy" else f"[{rule.basis}]({rule.source})"
        assert (
            index.count(f"[{name}]({name}.md) | {rule.sentence} | {basis} | {rule.severity} |") == 1
        )
        assert index.count(f"\n{name}\n") == 1  # in the table of contents
