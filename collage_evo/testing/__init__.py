"""Conformance suite for authors of backends.

In a test file, for pytest (``pip install "collage-evo[testing]"``)::

    class TestMine(BackendConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def backend(cls):
            return MyBackend()
"""

__all__ = ["conformance", "pytest_backend"]


def __dir__() -> list[str]:
    return __all__
