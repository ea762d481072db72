"""Addresses as they are kept: two spellings of the same one are one link."""

from urllib.parse import urlsplit


def clean(address: str) -> str:
    """The address in the form in which it is kept; an error where it is no web address."""
    address = address.strip().lower()
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address!r} is no web address: it should begin with http:// or https:// and a host")
    return parts.geturl() if parts.path else f"{parts.geturl()}/"
