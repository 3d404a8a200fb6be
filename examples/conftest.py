"""The order of the tests: those that are marked `slow` come last."""


def pytest_collection_modifyitems(items: list) -> None:  # type: ignore[type-arg]
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
