"""The conformance suite's verdict on the host, in every version of the protocol that a scenario exists in."""

import sys

import pytest

from tests.conformance.client import REFUSALS, SCENARIOS
from tests.conformance.suite import (
    EXTENSION,
    SECONDS,
    TOOLS,
    Played,
    Verdict,
    players,
    required_scenarios,
    run_clients,
    scenarios_by_version,
)

OLDEST_VERSION = "2025-03-26"
MODERN_VERSION = "2026-07-28"

RUNS = {
    # Every scenario in the version that the suite chooses: 2025-11-25 wherever that has it.
    "all": ("--suite", "all"),
    MODERN_VERSION: ("--requirements", MODERN_VERSION),
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    OLDEST_VERSION: ("--suite", "backcompat", "--spec-version", OLDEST_VERSION),
}
"""What is run. No scenario is played twice in one version, except a few that belong to none."""

PROVES = {
    "auth/pre-registration": pytest.mark.requirement("NEED-13"),
    "auth/token-endpoint-auth-basic": pytest.mark.requirement("NEED-13"),
    "auth/token-endpoint-auth-post": pytest.mark.requirement("NEED-13"),
    "auth/token-endpoint-auth-none": pytest.mark.requirement("NEED-13"),
    "auth/scope-from-www-authenticate": pytest.mark.requirement("NEED-16"),
    "auth/scope-from-scopes-supported": pytest.mark.requirement("NEED-16"),
    "auth/scope-omitted-when-undefined": pytest.mark.requirement("NEED-16"),
    "auth/scope-step-up": pytest.mark.requirement("NEED-16"),
    "auth/client-credentials-basic": pytest.mark.requirement("NEED-17"),
    "auth/client-credentials-jwt": pytest.mark.requirement("NEED-17"),
    "auth/wif-jwt-bearer": pytest.mark.requirement("NEED-17"),
    "auth/enterprise-managed-authorization": pytest.mark.requirement("NEED-17"),
    "auth/iss-supported-missing": pytest.mark.requirement("HARD-32"),
    "auth/iss-wrong-issuer": pytest.mark.requirement("HARD-32"),
    "auth/iss-unexpected": pytest.mark.requirement("HARD-32"),
    "auth/iss-normalized": pytest.mark.requirement("HARD-32"),
    "auth/authorization-server-migration": pytest.mark.requirement("HARD-38"),
}

pytestmark = [
    pytest.mark.slow,
    # The first test waits for all runs, each of which has a limit of its own.
    pytest.mark.timeout(SECONDS * len(RUNS)),
    pytest.mark.skipif(
        not (TOOLS / ".installed").exists(), reason="no conformance suite: run tests/tools/install"
    ),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    folder = tmp_path_factory.mktemp("exam")
    with players(folder) as command:
        return {name: run_clients(command, folder / name, *options) for name, options in RUNS.items()}


@pytest.mark.parametrize(
    "scenario", [pytest.param(scenario, marks=PROVES.get(scenario, ())) for scenario in SCENARIOS]
)
def test_the_host_passes_a_scenario(scenario: str, verdicts: dict[str, Verdict]) -> None:
    all_played = [verdict.played[scenario] for verdict in verdicts.values() if scenario in verdict.played]
    assert all_played
    for played in all_played:
        assert played.faults() == []
        ending = played.ending
        assert ending["state"] == ("auth_required" if scenario in REFUSALS else "ready")
        if scenario not in REFUSALS:
            # The servers of this extension speak the modern protocol, whatever is asked for.
            is_modern = ending["asked"] == MODERN_VERSION or scenario.startswith("sep-2640-")
            assert (ending["version"] == MODERN_VERSION) == is_modern


@pytest.mark.parametrize("run", RUNS)
def test_the_suite_has_nothing_to_say_against_a_run(run: str, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[run]
    assert verdict.status == 0, verdict.output
    assert "Client exited with code" not in verdict.output
    assert "Client timed out" not in verdict.output


def test_the_runs_are_all_that_the_suite_has(
    verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    listed = scenarios_by_version()
    played = {name: set(verdict.played) for name, verdict in verdicts.items()}
    everything = {scenario for scenarios in listed.values() for scenario in scenarios}
    assert played["all"] == everything == set(SCENARIOS)
    assert played[MODERN_VERSION] == required_scenarios(MODERN_VERSION) >= listed[MODERN_VERSION]
    assert played["2025-06-18"] == listed["2025-06-18"]
    assert played[OLDEST_VERSION] == listed[OLDEST_VERSION]
    # What else the suite can be asked for is part of these, in the same version.
    stable = {
        name: one for name, one in verdicts["all"].played.items() if one.ending.get("asked") == "2025-11-25"
    }
    required = required_scenarios("2025-11-25")
    assert set(stable) >= required >= listed["2025-11-25"]
    assert set(stable) >= listed[EXTENSION]
    exams = {
        "requirements 2025-11-25": [stable[name] for name in required],
        f"requirements {MODERN_VERSION}": [*verdicts[MODERN_VERSION].played.values()],
        f"backcompat {OLDEST_VERSION}": [*verdicts[OLDEST_VERSION].played.values()],
        "of no version (extensions)": [stable[name] for name in listed[EXTENSION]],
        "all": [*verdicts["all"].played.values()],
    }
    with capsys.disabled():
        sys.stdout.writelines(f"\n{exam}: {counted(all_played)}" for exam, all_played in exams.items())


def counted(all_played: list[Played]) -> str:
    passed = [played for played in all_played if not played.faults()]
    return f"{len(passed)} of {len(all_played)} scenarios passed"
