"""What holds for all tests."""

from hypothesis import settings

# A busy machine is no error: no example has a deadline, on any machine.
settings.register_profile("without deadline", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("without deadline")
