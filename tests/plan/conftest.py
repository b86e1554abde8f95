"""Property tests keep no database of examples, and do not fail because the machine is busy."""

from hypothesis import settings

settings.register_profile("repository", database=None, deadline=None)
settings.load_profile("repository")
