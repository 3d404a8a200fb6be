"""The language of test scripts, its referee and its servers: see README.md."""

import pytest

pytest.register_assert_rewrite("testing.scripts", "testing.places")
