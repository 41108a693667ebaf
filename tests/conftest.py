"""What all tests share."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests over real daemons get a second try, named in the summary: two shared cores may starve an sshd."""
    for item in items:
        if item.get_closest_marker("lab") or "faults" in item.path.parts:
            item.add_marker(pytest.mark.flaky(reruns=1))
