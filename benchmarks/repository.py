"""Imported before ``tests.support`` by benchmarks that share material with the tests: makes it importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
