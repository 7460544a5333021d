"""The files of the web pages: vendored ones unchanged, all of them small, the code linted."""

import hashlib
import re
import tomllib
from pathlib import Path

from fairlead.server.web.files import MEDIA_TYPES, STATIC, static_files

VENDOR = STATIC / "vendor"
FIRST_PAGE_BYTES = 400_000


def test_vendored_files_are_those_of_their_projects_with_licence_and_version() -> None:
    listed = tomllib.loads((VENDOR / "vendored.toml").read_text())
    served = {path.name for path in VENDOR.iterdir() if path.suffix in MEDIA_TYPES}
    assert served == set(listed)
    for name, about in listed.items():
        before, after = about.get("replaced", ["", ""])
        source = (VENDOR / name).read_text(encoding="utf-8")
        source = source.replace(after, before) if after else source
        assert hashlib.sha256(source.encode()).hexdigest() == about["sha256"], name
        assert about["version"]
        assert (VENDOR / about["licence_file"]).is_file()


def test_all_pages_together_stay_within_the_budget_of_the_first_one() -> None:
    assert sum(len(one.compressed) for one in static_files().values()) < FIRST_PAGE_BYTES


def test_only_files_for_browsers_are_served() -> None:
    assert {Path(name).suffix for name in static_files()} == set(MEDIA_TYPES)


def test_own_scripts_make_no_markup_from_text_and_name_no_other_host() -> None:
    own = [path for path in STATIC.rglob("*") if path.is_file() and path.parent != VENDOR]
    for path in own:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        dangers = re.findall(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|//\w", text
        )
        assert dangers == [], path
