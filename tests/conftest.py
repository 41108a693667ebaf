"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A starved machine makes one example slow; that is no fault of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests over real daemons get a second try, named in the summary: two shared cores may starve an sshd."""
    for item in items:
        if item.get_closest_marker("lab") or "faults" in item.path.parts:
            item.add_marker(pytest.mark.flaky(reruns=1))
