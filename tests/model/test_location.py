"""Where results may go: below a location that the operator named, and nowhere else."""

from __future__ import annotations

import os.path
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota.model.errors import InvalidField
from rota.model.location import LONGEST, Place, checked_location, place_of

PLUS_TWO = timezone(timedelta(hours=2))
# What makes or breaks paths and URLs, often enough that it meets.
PIECES = st.sampled_from(
    [
        "reports", "/", "/", "..", ".", "%2e", "%2f", "\\", "\t", "\n", "\0", ":", "|", "://", "file:", "~", "#1", "?",
        "{job_id}", "{execution_id}", "{attempt}", "{fires_at}", "{", "}", "{job_id.x}", "．．", "\u2215", "\u202e",
        " ", "a", "ü",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=12).map("".join))
ANYTHING_BELOW = st.builds("reports/{}".format, TEXTS)


def filled(text: str, *, execution_id: str = "1799060400000-job", job_id: str = "job") -> Place:
    fires_at = datetime(2027, 1, 4, 13, 5, 9, 123_000, tzinfo=PLUS_TWO)
    return place_of(text, execution_id=execution_id, job_id=job_id, attempt=3, fires_at=fires_at)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("reports", "reports/job/1799060400000-job.json"),
        ("a-b_9/x", "a-b_9/x"),
        ("reports/sales/{fires_at}.json", "reports/sales/20270104T110509Z.json"),
        ("reports/{job_id}/{execution_id}-{attempt}", "reports/job/1799060400000-job-3"),
        ("reports/...", "reports/..."),
        ("reports/ü b/%2e%2e", "reports/ü b/%2e%2e"),
    ],
)
def test_placeholders_are_filled_in(text: str, place: str) -> None:
    assert checked_location(text) == text
    assert str(filled(text)) == place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "name of a location"),
        ("/etc/passwd", "name of a location"),
        ("Reports/x", "name of a location"),
        ("{job_id}/x", "name of a location"),
        ("reports\n", "name of a location"),
        ("x" * 65, "name of a location"),
        ("file:/etc/passwd", "name of a location"),
        ("s3://bucket/x", "URL"),
        ("reports/http://x", "URL"),
        ("reports/", "empty part"),
        ("reports//x", "empty part"),
        ("reports/x/", "empty part"),
        ("reports/..", "empty part"),
        ("reports/a/../../x", "empty part"),
        ("reports/./x", "empty part"),
        ("reports/a\\..\\x", "one of"),
        ("reports/x#1", "one of"),
        ("reports/C:", "one of"),
        ("reports/C|/x", "one of"),
        ("reports/.\t./x", "cannot be printed"),
        ("reports/x\0", "cannot be printed"),
        ("reports/x\x85", "cannot be printed"),
        ("reports/\ud800", "cannot be printed"),
        ("reports/{user_id}", "placeholder"),
        ("reports/{job_id.__class__}", "placeholder"),
        ("reports/{{job_id}}", "placeholder"),
        ("reports/{", "placeholder"),
        ("reports/" + "x" * LONGEST, "500"),
        ("reports/" + "x" * 241, "too long"),
        ("reports/" + "ü" * 121, "too long"),
    ],
)
def test_what_can_be_no_place_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidField, match=reason) as refused:
        checked_location(text)
    assert refused.value.field == "result_location"
    with pytest.raises(InvalidField):
        filled(text)


@pytest.mark.parametrize("job_id", ["..", "", "a/../..", "/etc", "a\\b", "{attempt}", "x\n", "x" * 241])
def test_what_is_filled_in_cannot_lead_out_either(job_id: str) -> None:
    with pytest.raises(InvalidField):
        filled("reports/{job_id}/x", job_id=job_id)


@given(text=st.one_of(TEXTS, ANYTHING_BELOW), job_id=TEXTS, execution_id=TEXTS)
@example("reports/.{job_id}.", "", "x")
@example("reports/.{job_id}", ".", "x")
def test_nothing_ever_leaves_its_location(text: str, job_id: str, execution_id: str) -> None:
    try:
        place = filled(text, job_id=job_id, execution_id=execution_id)
    except InvalidField:
        return
    assert place.name == text.partition("/")[0]
    assert "/" not in place.name and "." not in place.name
    assert os.path.normpath(f"/location/{place.path}") == f"/location/{place.path}"
    assert place.path.isprintable() and "\\" not in place.path


@given(st.one_of(TEXTS, ANYTHING_BELOW))
def test_what_the_server_takes_the_worker_takes(text: str) -> None:
    try:
        checked_location(text)
    except InvalidField:
        return
    filled(text)
