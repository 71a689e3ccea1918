"""Counts test cases. Every test writes NAME.junit.xml below its build folder: Catch2 binaries
through tests/support/catch-case, everything else through tests/support/tap-case."""
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Tally:
    """How many cases passed, and which ones failed or were skipped, with the reason."""
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def line(self):
        return (f"{self.passed} passed, {len(self.failed)} failed, "
                f"{len(self.skipped)} skipped")


def first_words(node):
    """The reason in a <failure> or <skipped> element, on one line."""
    lines = [line.strip() for line in (node.text or "").splitlines()]
    # Catch2 writes SKIPPED or FAILED, the text, then "at FILE:LINE".
    lines = [line for line in lines if line and line not in ("SKIPPED", "FAILED:")]
    return " ".join(lines)[:300] or node.get("message") or "no reason given"


def read_report(path, label):
    tally = Tally()
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{label}: {case.get('name')}"
        bad = case.find("failure")
        bad = case.find("error") if bad is None else bad
        skip = case.find("skipped")
        if bad is not None:
            tally.failed.append((name, first_words(bad)))
        elif skip is not None:
            tally.skipped.append((name, first_words(skip)))
        else:
            tally.passed += 1
    return tally


def find_reports(build):
    """All reports of a build folder by test name."""
    return {path.name.removesuffix(".junit.xml"): path
            for folder in ("tests", "fuzz") for path in (build / folder).rglob("*.junit.xml")}


def count(build, log, label):
    """The cases of one `meson test` run. A test that crashed, hung or left no report counts as one
    failed case, and so does one that failed although each of its cases passed (a leak, say)."""
    total = Tally()
    if not log.exists():
        total.failed.append((label, "meson test wrote no log"))
        return total
    reports = find_reports(build)
    for line in log.read_text().splitlines():
        test = json.loads(line)
        name, result = test["name"].rsplit(" / ", 1)[-1], test["result"]
        title = f"{label}/{name}"
        tally, broken = Tally(), None
        if name in reports:
            try:
                tally = read_report(reports[name], title)
            except ElementTree.ParseError:
                broken = "its report broke off"
        elif result != "SKIP":
            broken = "it left no report"
        if name not in reports and result == "SKIP":
            tally.skipped.append((title, "the whole test: exit code 77"))
        if not tally.failed and (broken or result not in ("OK", "SKIP")):
            code = test.get("returncode")
            tally.failed.append((title, f"{result.lower()}, exit code {code}"
                                 + (f": {broken}" if broken else "")))
        total.add(tally)
    return total
