"""The lab for the tests in this folder."""

from __future__ import annotations

from tests.lab.fixture import lab as lab
