"""The parts of the house put together: what the commands start, drive and land."""
