import os
import time
from pathlib import Path

import msgspec
import pytest

from fairlead.servers.docs.docs import MAX_FRESH_SECONDS, CachedPage, PageCache, fresh_seconds


def page(url: str = "https://docs.test/", text: str = "text", **rest: object) -> CachedPage:
    made = CachedPage(
        url=url,
        status=200,
        content_type="text/plain",
        title="A title",
        text=text,
        whole=True,
        note=None,
        checked_at=time.time(),
        fresh_seconds=60.0,
    )
    return msgspec.structs.replace(made, **rest)


def set_age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_what_is_put_is_there_again_and_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "pages"
    kept = page(etag='"1"', text="caf\u00e9 \u4e16")
    PageCache(folder).put(kept)
    assert PageCache(folder).get("https://docs.test/") == kept
    assert PageCache(folder).get("https://docs.test/other") is None
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_folder_that_others_could_look_into_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir(mode=0o755)
    PageCache(folder).put(page())
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_link_in_the_place_of_the_folder_or_a_page_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "linked").symlink_to(elsewhere)
    PageCache(tmp_path / "linked").put(page())
    assert list(elsewhere.iterdir()) == []
    cache = PageCache(tmp_path / "pages")
    cache.put(page())
    (file,) = (tmp_path / "pages").iterdir()
    file.rename(elsewhere / "stolen")
    file.symlink_to(elsewhere / "stolen")
    assert cache.get("https://docs.test/") is None
    cache.put(page(text="new"))
    assert (elsewhere / "stolen").read_bytes().count(b"new") == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"url": 1}', b"\xff" * 100])
def test_what_is_damaged_counts_as_nothing(tmp_path: Path, content: bytes) -> None:
    cache = PageCache(tmp_path)
    cache.put(page())
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(content)
    assert cache.get("https://docs.test/") is None


def test_a_page_under_the_name_of_another_counts_as_nothing(tmp_path: Path) -> None:
    cache = PageCache(tmp_path)
    cache.put(page("https://a.test/"))
    (file,) = tmp_path.glob("*.json")
    cache.put(page("https://b.test/"))
    (other,) = set(tmp_path.glob("*.json")) - {file}
    os.replace(file, other)
    assert cache.get("https://b.test/") is None


def test_the_oldest_pages_make_room(tmp_path: Path) -> None:
    cache = PageCache(tmp_path, max_bytes=10_000)
    for number in range(12):
        cache.put(page(f"https://docs.test/{number}", text="x" * 1500))
        for age, file in enumerate(sorted(tmp_path.glob("*.json"), key=lambda file: -file.stat().st_mtime)):
            set_age(file, age + 1)
    assert sum(file.stat().st_size for file in tmp_path.glob("*.json")) <= 10_000
    assert cache.get("https://docs.test/11") is not None
    assert cache.get("https://docs.test/0") is None
    cache.put(page("https://docs.test/large", text="x" * 5000))
    assert cache.get("https://docs.test/large") is None


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    for name, age in {"old.tmp": 7200, "new.tmp": 10}.items():
        (tmp_path / name).write_text("half")
        set_age(tmp_path / name, age)
    PageCache(tmp_path).put(page())
    assert {file.name for file in tmp_path.glob("*.tmp")} == {"new.tmp"}


def test_a_page_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    PageCache(tmp_path / "file").put(page())
    PageCache(tmp_path).put(page(text="half a character \ud800"))
    assert not list(tmp_path.glob("*.json"))
    assert not list(tmp_path.glob("*.tmp"))


def test_freshness_ends_and_a_clock_set_back_makes_nothing_fresh() -> None:
    kept = page(checked_at=1000.0, fresh_seconds=60.0)
    assert [kept.is_fresh(now) for now in (999.0, 1000.0, 1059.0, 1061.0)] == [False, True, True, False]
    assert kept.is_fresh(1500.0, paging=True)
    assert not kept.is_fresh(2000.0, paging=True)


def test_an_unchanged_page_is_fresh_again(tmp_path: Path) -> None:
    cache = PageCache(tmp_path)
    old = page(checked_at=1.0)
    renewed = cache.renew(old, 30.0)
    assert renewed.is_fresh(time.time())
    assert cache.get(old.url) == renewed


def test_only_what_is_known_is_asked_about() -> None:
    assert page().conditions == {}
    assert page(etag='"1"', last_modified="then").conditions == {
        "If-None-Match": '"1"',
        "If-Modified-Since": "then",
    }


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"Cache-Control": "max-age=60"}, 60.0),
        ({"Cache-Control": "public, Max-Age = 60, immutable"}, 60.0),
        ({"Cache-Control": "max-age=60", "Age": "50"}, 10.0),
        ({"Cache-Control": "max-age=60", "Age": "90"}, 0.0),
        ({"Cache-Control": "max-age=60", "Age": "soon"}, 60.0),
        ({"Cache-Control": "max-age=99999999"}, MAX_FRESH_SECONDS),
        ({"Cache-Control": "max-age=60, no-cache"}, 0.0),
        ({"Cache-Control": "private, max-age=60"}, 60.0),
        ({"Cache-Control": "no-store, max-age=60"}, None),
        ({"Cache-Control": "max-age=60", "Vary": "*"}, None),
    ],
)
def test_a_server_says_how_long_its_page_keeps(headers: dict[str, str], seconds: float | None) -> None:
    assert fresh_seconds(headers) == seconds


def test_a_page_that_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = PageCache(tmp_path)
    cache.put(page())
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.mkdir()
    cache.put(page())
    assert cache.get("https://docs.test/") is None
    assert list(tmp_path.iterdir()) == [file]
